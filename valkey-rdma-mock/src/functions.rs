//! Functions, as far as a server without an interpreter can have them.

use std::collections::BTreeMap;

use crate::failure::Failure;

/// The names of loaded libraries and of their functions. Calling a function returns nil.
#[derive(Default)]
pub(crate) struct Functions {
    libraries: BTreeMap<String, Vec<String>>,
}

impl Functions {
    /// `FUNCTION LOAD`: returns the name of the library.
    ///
    /// Reads `#!lua name=NAME` and the names in `register_function('NAME', ...)`, and nothing else of the code.
    pub(crate) fn load(&mut self, code: &[u8], replace: bool) -> Result<String, Failure> {
        let code = String::from_utf8_lossy(code);
        let (header, body) = code.split_once('\n').unwrap_or((&code, ""));
        let header = header.strip_prefix("#!").ok_or(Failure::new("ERR Missing library metadata"))?;
        let mut words = header.split_ascii_whitespace();
        let engine = words.next().unwrap_or_default();
        if !engine.eq_ignore_ascii_case("lua") {
            return Err(format!("ERR Engine '{engine}' not found").into());
        }
        let name = words.find_map(|word| word.strip_prefix("name="));
        let name = name.ok_or(Failure::new("ERR Library name was not given"))?.to_owned();
        if !replace && self.libraries.contains_key(&name) {
            return Err(format!("ERR Library '{name}' already exists").into());
        }
        let calls = body.split("register_function(").skip(1);
        let quoted = calls.filter_map(|call| call.split(['\'', '"']).nth(1));
        let functions: Vec<String> = quoted.map(str::to_owned).collect();
        if functions.is_empty() {
            return Err(Failure::new("ERR No functions registered"));
        }
        self.libraries.insert(name.clone(), functions);
        Ok(name)
    }

    pub(crate) fn is_loaded(&self, function: &[u8]) -> bool {
        self.libraries.values().flatten().any(|name| name.as_bytes() == function)
    }

    pub(crate) fn delete(&mut self, library: &[u8]) -> bool {
        self.libraries.remove(&*String::from_utf8_lossy(library)).is_some()
    }

    pub(crate) fn flush(&mut self) {
        self.libraries.clear();
    }
}
