//! Man pages and shell completions.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate_to};

/// Writes man pages and completions if the command line is `PROGRAM --generate DIR`; the program then ends with this status.
/// `None` if the command line is another one.
///
/// Files: `man/man1/PROGRAM.1` and one page for each sub-command, `bash-completion/completions/PROGRAM`,
/// `fish/vendor_completions.d/PROGRAM.fish` and `zsh/site-functions/_PROGRAM`.
#[must_use]
pub fn generate(command: Command) -> Option<ExitCode> {
    let folder = asked(std::env::args_os().skip(1))?;
    Some(match write(command, Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: --generate {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    })
}

/// The folder, if nothing else is asked for.
fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<OsString> {
    let (flag, folder, more) = (arguments.next()?, arguments.next()?, arguments.next());
    (flag == "--generate" && more.is_none()).then_some(folder)
}

fn write(mut command: Command, share: &Path) -> io::Result<()> {
    let program = command.get_name().to_owned();
    let folder = |name: &str| {
        let folder = share.join(name);
        fs::create_dir_all(&folder).map(|()| folder)
    };
    clap_mangen::generate_to(command.clone(), folder("man/man1")?)?;
    generate_to(Shell::Fish, &mut command, &program, folder("fish/vendor_completions.d")?)?;
    generate_to(Shell::Zsh, &mut command, &program, folder("zsh/site-functions")?)?;
    // bash-completion looks for a file with the program's name.
    let mut script = Vec::new();
    clap_complete::generate(Shell::Bash, &mut command, &program, &mut script);
    fs::write(folder("bash-completion/completions")?.join(&program), script)
}
