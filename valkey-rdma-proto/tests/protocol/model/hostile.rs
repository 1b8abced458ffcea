//! One side, and a peer that says anything about features at any time. What must come of it is written down a second time
//! here, from the clauses (F-3, F-5 to F-8).

use valkey_rdma_proto::wire::{ControlMessage, Features};
use valkey_rdma_proto::{FEATURE_SELECTOR, FeatureSet, ProtocolError};

use super::*;
use crate::scripted::{PEER_MEMORY, Scripted};

const NONE: FeatureSet = FeatureSet::NONE;
const TLS: FeatureSet = FeatureSet::TLS;
const DIRECT: FeatureSet = FeatureSet::DIRECT;

/// What the peer says, and what the application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    Register,
    /// Opcode 0: from a server an answer, from a client a question.
    Answer(u16, FeatureSet),
    Choice(u16, FeatureSet),
    Bytes(u32),
    Write,
    Close,
}

use Said::{Answer, Bytes, Choice, Close, Register, Write};

const SAID: [Said; 13] = [
    Register,
    Answer(FEATURE_SELECTOR, NONE),
    Answer(FEATURE_SELECTOR, TLS),
    Answer(FEATURE_SELECTOR, FeatureSet::from_bits(u64::MAX)),
    Answer(0, TLS),
    Choice(FEATURE_SELECTOR, NONE),
    Choice(FEATURE_SELECTOR, TLS),
    Choice(FEATURE_SELECTOR, DIRECT),
    Choice(0, DIRECT),
    Bytes(0),
    Bytes(1),
    Write,
    Close,
];

/// The side, and what was said to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lone {
    side: Scripted,
    history: Vec<Said>,
}

#[derive(Clone, Debug)]
struct Hostile {
    role: Role,
    config: Config,
}

/// What the clauses say about a history: the end, or what is agreed.
type Verdict = Result<Option<FeatureSet>, CloseReason>;

impl Hostile {
    fn client(wants: FeatureSet, requires: FeatureSet) -> Self {
        Self { role: Role::Client, config: Config { wants, requires, ..Config::new(Role::Client) } }
    }

    fn server(offers: FeatureSet) -> Self {
        Self { role: Role::Server, config: Config { offers, ..Config::new(Role::Server) } }
    }

    fn verdict(&self, history: &[Said]) -> Verdict {
        match self.role {
            Role::Client => self.verdict_of_client(history),
            Role::Server => self.verdict_of_server(history),
        }
    }

    fn verdict_of_client(&self, history: &[Said]) -> Verdict {
        let asked = self.config.wants | self.config.requires;
        let mut agreed = asked.is_empty().then_some(NONE);
        let mut data = false;
        for said in history {
            match *said {
                Bytes(len) => data |= len > 0,
                Choice(..) => return Err(CloseReason::Protocol(ProtocolError::Opcode { opcode: 1 })),
                Answer(..) if agreed.is_some() => {
                    return Err(CloseReason::Protocol(ProtocolError::Opcode { opcode: 0 }));
                }
                Answer(select, bits) => {
                    let offered = if select == FEATURE_SELECTOR { bits } else { NONE };
                    if !offered.contains(self.config.requires) {
                        return Err(CloseReason::NotOffered { missing: self.config.requires - offered });
                    }
                    if data && !(asked & offered).is_empty() {
                        return Err(CloseReason::Protocol(ProtocolError::DataBeforeAgreement));
                    }
                    agreed = Some(asked & offered);
                }
                Register | Write | Close => {}
            }
        }
        Ok(agreed)
    }

    fn verdict_of_server(&self, history: &[Said]) -> Verdict {
        let offers = self.config.offers;
        let mut agreed = offers.is_empty().then_some(NONE);
        for said in history {
            match *said {
                Bytes(1..) => agreed = agreed.or(Some(NONE)),
                Choice(FEATURE_SELECTOR, _) if offers.is_empty() => {}
                Choice(FEATURE_SELECTOR, features) => {
                    let error = if !offers.contains(features) {
                        ProtocolError::FeatureNotOffered { features: features - offers }
                    } else if agreed.is_some() {
                        ProtocolError::LateFeatures { features }
                    } else {
                        agreed = Some(features);
                        continue;
                    };
                    return Err(CloseReason::Protocol(error));
                }
                _ => {}
            }
        }
        Ok(agreed)
    }

    /// The side came to what the clauses say.
    fn is_right(&self, lone: &Lone) -> bool {
        let (side, closed) = (&lone.side, lone.history.contains(&Close));
        match self.verdict(&lone.history) {
            Ok(agreed) => side.core.agreed() == agreed && (closed || side.close_reason().is_none()),
            Err(reason) => side.close_reason() == Some(reason),
        }
    }

    /// It asks once if it wants something; it chooses once what it uses, before it writes.
    fn says_what_it_may(&self, lone: &Lone) -> bool {
        let side = &lone.side;
        let about = |message: &&ControlMessage| !matches!(message, ControlMessage::RegisterXferMemory(_));
        let said: Vec<_> = side.messages.iter().filter(about).copied().collect();
        let features = |bits| Features { select: FEATURE_SELECTOR, bits };
        let mut expected = Vec::new();
        if self.role == Role::Server {
            expected.extend(lone.history.iter().filter_map(|said| match *said {
                Answer(FEATURE_SELECTOR, _) => Some(features(self.config.offers.bits())),
                Answer(select, _) => Some(Features { select, bits: 0 }),
                _ => None,
            }));
            return said == expected.into_iter().map(ControlMessage::GetServerFeature).collect::<Vec<_>>();
        }
        if self.config.wants != NONE || self.config.requires != NONE {
            expected.push(features(0));
        }
        let mut expected: Vec<_> = expected.into_iter().map(ControlMessage::GetServerFeature).collect();
        if let Some(chosen) = side.core.agreed().filter(|chosen| !chosen.is_empty()) {
            expected.push(ControlMessage::SetClientFeature(features(chosen.bits())));
        }
        said == expected
    }

    /// Before it is agreed nothing is sent, and nothing can be given or taken.
    fn is_silent_before(lone: &Lone) -> bool {
        let core = &lone.side.core;
        core.agreed().is_some() || lone.side.data.is_empty() && core.room() == 0 && core.readable().is_none()
    }

    /// The events say the same, once; a client that is connected knows it, and has what it requires.
    fn reports_it_once(&self, lone: &Lone) -> bool {
        let side = &lone.side;
        let agreed: Vec<_> = (side.events.iter())
            .filter_map(|event| match event {
                Event::Agreed { features } => Some(*features),
                _ => None,
            })
            .collect();
        let open = match self.role {
            Role::Client => self.config.wants != NONE || self.config.requires != NONE,
            Role::Server => self.config.offers != NONE,
        };
        let known = side.core.agreed().filter(|_| open);
        let connected = side.events.contains(&Event::Connected);
        let has = |features: FeatureSet| features.contains(self.config.requires);
        agreed == known.into_iter().collect::<Vec<_>>()
            && (self.role == Role::Server || !connected || side.core.agreed().is_some_and(has))
    }
}

impl Model for Hostile {
    type State = Lone;
    type Action = Said;

    fn init_states(&self) -> Vec<Lone> {
        let mut side = Scripted::new(self.role, self.config.clone());
        side.establish();
        side.acknowledge();
        vec![Lone { side, history: Vec::new() }]
    }

    fn actions(&self, lone: &Lone, said: &mut Vec<Said>) {
        let registered = lone.history.contains(&Register);
        if lone.history.len() < 4 && !lone.side.core.is_closing() {
            // What a peer may say about windows has worlds of its own.
            said.extend(SAID.into_iter().filter(|said| *said != Register || !registered));
        }
    }

    fn next_state(&self, lone: &Lone, said: Said) -> Option<Lone> {
        let Lone { mut side, mut history } = lone.clone();
        match said {
            Register => side.says(ControlMessage::RegisterXferMemory(PEER_MEMORY)),
            Answer(select, features) => {
                side.says(ControlMessage::GetServerFeature(Features { select, bits: features.bits() }));
            }
            Choice(select, features) => {
                side.says(ControlMessage::SetClientFeature(Features { select, bits: features.bits() }));
            }
            Bytes(len) => side.writes(len),
            Write => drop(side.write(1)),
            Close => side.close(),
        }
        side.acknowledge();
        history.push(said);
        Some(Lone { side, history })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the clauses decide", |model: &Hostile, lone: &Lone| model.is_right(lone)),
            Property::always("it says what it may", |model: &Hostile, lone: &Lone| {
                model.says_what_it_may(lone)
            }),
            Property::always("not a byte before", |_, lone: &Lone| Self::is_silent_before(lone)),
            Property::always("reported once", |model: &Hostile, lone: &Lone| model.reports_it_once(lone)),
        ]
    }
}

#[test]
fn a_client_under_any_answers_f3_f5_f6_f7_f8() {
    prove("a client that wants TLS", Hostile::client(TLS, NONE));
    prove("a client that requires TLS", Hostile::client(NONE, TLS));
    prove("a client that wants DIRECT and requires TLS", Hostile::client(DIRECT, TLS));
    prove("a client that wants nothing", Hostile::client(NONE, NONE));
}

#[test]
fn a_server_under_any_questions_and_choices_f2_f6_f7() {
    prove("a server that offers TLS", Hostile::server(TLS));
    prove("a server that offers both", Hostile::server(TLS | DIRECT));
    prove("a server that offers nothing", Hostile::server(NONE));
}
