//! What was seen of a reply that the client library has read.

use valkey_rdma_client::Value;

use super::{Kind, Seen, Want, Wanted, Wrong, difference};

impl Seen {
    /// Records what `value` is, instead of what was seen before.
    pub(crate) fn see(&mut self, value: &Value, want: &impl Want) {
        self.clear();
        self.kind = match value {
            Value::Nil => Kind::Nil,
            Value::Int(number) => {
                self.integer = *number;
                Kind::Integer
            }
            Value::Simple(text) => {
                self.set_text(text);
                Kind::Status
            }
            Value::Bulk(text) | Value::Verbatim { text, .. } => {
                (self.len, self.payload) = (text.len(), self.payload + text.len() as u64);
                Kind::Bulk
            }
            Value::Array(items) | Value::Set(items) | Value::Push(items) => {
                for item in items {
                    if let Value::Error(error) = item
                        && !self.holds_error
                    {
                        self.holds_error = true;
                        self.set_text(error.to_string().as_bytes());
                    }
                    if let Value::Bulk(text) = item {
                        self.payload += text.len() as u64;
                    }
                }
                for (element, item) in items.iter().enumerate() {
                    self.compare(element, item, want, false);
                }
                self.len = items.len();
                Kind::Array
            }
            Value::Map(pairs) => {
                self.len = pairs.len() * 2;
                Kind::Array
            }
            Value::Error(error) => {
                self.set_text(error.to_string().as_bytes());
                Kind::Error
            }
            _ => Kind::Other,
        };
        self.compare(0, value, want, true);
    }

    fn compare(&mut self, element: usize, value: &Value, want: &impl Want, top: bool) {
        let Some(wanted) = want.string(element) else { return };
        match value {
            Value::Nil => self.note(element, Wrong::Missing { wanted: wanted.len() }),
            Value::Bulk(got) => {
                let first = match wanted {
                    Wanted::Len(_) => None,
                    Wanted::Bytes(bytes) => difference(0, got, bytes),
                };
                match (wanted.len(), first) {
                    (wanted, first) if wanted != got.len() => {
                        self.note(element, Wrong::Length { got: got.len(), wanted, first });
                    }
                    (_, Some(first)) => self.note(element, Wrong::Bytes { len: got.len(), first }),
                    (_, None) => {}
                }
            }
            _ if top => {} // Its kind says it.
            Value::Error(_) => {}
            _ => self.note(element, Wrong::Type { wanted: wanted.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FourBytes;

    impl Want for FourBytes {
        fn string(&self, _: usize) -> Option<Wanted<'_>> {
            Some(Wanted::Len(4))
        }
    }

    #[test]
    fn a_member_of_another_type_is_not_a_string() {
        let string = Value::Bulk("abcd".into());
        let wrong = |items| {
            let mut seen = Seen::default();
            seen.see(&Value::Array(items), &FourBytes);
            seen.wrong
        };
        assert_eq!(wrong(vec![string.clone(), string.clone()]), None);
        for other in [Value::Int(7), Value::Simple("abcd".into()), Value::Array(Vec::new())] {
            assert_eq!(wrong(vec![string.clone(), other]), Some((1, Wrong::Type { wanted: 4 })));
        }
    }
}
