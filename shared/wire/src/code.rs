//! The closed list of codes. One table decides what a code means over HTTP
//! and at the command line.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether repeating a call is useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retry {
    /// The same call again, at once.
    Same,
    /// Later, or at another address.
    Later,
    /// With a new attempt.
    NewAttempt,
    /// Never.
    Never,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $status:literal, $retry:ident, $exit:literal, $title:literal;)*) => {
        /// What a refusal or a verdict other than "released" is called.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it is written.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Its HTTP status.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Whether repeating the call is useful.
            #[must_use]
            pub fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)* }
            }

            /// The exit code of a command that ends with it.
            #[must_use]
            pub fn exit(self) -> u8 {
                match self { $(Self::$name => $exit,)* }
            }

            /// What it means, as a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*).trim_ascii(),)* }
            }

            /// The code in a few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// Time for this call is up; the generation is still open.
    StillGathering = "still-gathering", 408, Same, 124, "still gathering";
    /// The generation is not open here yet.
    NotOpenYet = "not-open-yet", 408, Same, 124, "not open yet";
    /// The generation ended without a release.
    Broken = "broken", 409, Never, 3, "the generation is broken";
    /// It was released, but not whole, and whole was asked for.
    NotWhole = "not-whole", 409, Never, 3, "released, but not whole";
    /// Another generation is the right one.
    WrongGeneration = "wrong-generation", 409, Never, 4, "another generation is open";
    /// The generation had ended before.
    AlreadyDecided = "already-decided", 409, Never, 4, "already decided";
    /// The region has promised; wait for the outcome.
    Sealed = "sealed", 409, Never, 4, "the region is complete";
    /// Only a broken generation can be retried.
    NotBroken = "not-broken", 409, Never, 4, "the generation is not broken";
    /// The definition in force differs.
    Conflict = "conflict", 409, Never, 4, "another definition is in force";
    /// The attempt was withdrawn.
    Withdrawn = "withdrawn", 409, NewAttempt, 4, "the attempt was withdrawn";
    /// A higher attempt has arrived.
    StaleAttempt = "stale-attempt", 409, NewAttempt, 4, "a higher attempt has arrived";
    /// A later session works for this participant.
    Fenced = "fenced", 409, Never, 5, "a later session took over";
    /// The session is over.
    SessionLost = "session-lost", 410, Never, 5, "the session is over";
    /// Details are past their retention.
    Expired = "expired", 410, Never, 4, "past retention";
    /// The barrier was deleted.
    Deleted = "deleted", 410, Never, 4, "deleted";
    /// The barrier is not defined.
    NotDefined = "not-defined", 404, Later, 4, "not defined";
    /// The barrier has no such generation.
    NoSuchGeneration = "no-such-generation", 404, Later, 4, "no such generation";
    /// The participant is not in the set.
    NotExpected = "not-expected", 422, Never, 4, "not expected here";
    /// So many others arrived already.
    Full = "full", 422, Never, 4, "all places are taken";
    /// The region's share of outputs is used up.
    OutputsFull = "outputs-full", 422, Never, 4, "no room for outputs";
    /// The call belongs to another region.
    WrongRegion = "wrong-region", 422, Never, 4, "wrong region";
    /// The region is not declared.
    UnknownRegion = "unknown-region", 422, Never, 4, "unknown region";
    /// As many keys gather as may.
    TooManyOpen = "too-many-open", 422, Later, 4, "too many open generations";
    /// A name is outside its grammar.
    InvalidName = "invalid-name", 422, Never, 4, "invalid name";
    /// A definition says something that can't be meant.
    InvalidDefinition = "invalid-definition", 422, Never, 4, "invalid definition";
    /// A request asks for something this version does not do yet.
    NotYet = "not-yet", 422, Never, 4, "not supported yet";
    /// The request can't be read.
    BadRequest = "bad-request", 400, Never, 2, "bad request";
    /// The path must name a generation.
    GenerationRequired = "generation-required", 400, Never, 2, "name a generation";
    /// There is nothing at this path.
    NotFound = "not-found", 404, Never, 2, "not found";
    /// The path does not take this method.
    MethodNotAllowed = "method-not-allowed", 405, Never, 2, "method not allowed";
    /// Nobody said who is calling.
    Unauthenticated = "unauthenticated", 401, Never, 4, "not authenticated";
    /// The caller may not do this.
    Forbidden = "forbidden", 403, Never, 4, "forbidden";
    /// The definition is not at the revision that was named.
    Precondition = "precondition", 412, Later, 4, "the definition has changed";
    /// The body is over the limit.
    TooLarge = "too-large", 413, Never, 4, "too large";
    /// A limit on what is in flight is reached.
    Busy = "busy", 429, Later, 75, "busy";
    /// Something that is needed does not answer. Nothing was done.
    Unavailable = "unavailable", 503, Later, 75, "unavailable";
    /// A first arrival could not open its generation. Nothing was done.
    CannotOpen = "cannot-open", 503, Later, 75, "cannot open the generation now";
    /// This region has not heard of the generation yet. Nothing was done.
    Behind = "behind", 503, Later, 75, "this region is behind";
    /// The server is stopping.
    Draining = "draining", 503, Later, 75, "stopping";
    /// The store takes no more writes. Nothing was done.
    StorageFull = "storage-full", 503, Later, 75, "storage full";
    /// It may or may not have been done; the same call again is safe.
    OutcomeUnknown = "outcome-unknown", 503, Same, 75, "outcome unknown";
    /// A defect of Muster.
    Internal = "internal", 500, Later, 1, "internal error";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_serde_writes() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    /// `docs/codes.md`, where every problem document points to. Set
    /// `MUSTER_DOCS` to `write` to write it anew.
    #[test]
    fn the_page_of_codes_is_true() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/codes.md");
        if std::env::var_os("MUSTER_DOCS").is_some_and(|value| value == "write") {
            std::fs::write(&path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), page(), "run the tests with MUSTER_DOCS=write");
    }

    fn page() -> String {
        let mut page = String::from(
            "# Codes\n\nEvery refusal is a problem document (RFC 9457, `application/problem+json`) with one of these \
             codes. 2xx on a call\nthat can let somebody pass means released; none of these codes is a 2xx.\n\n\
             This page is written from `shared/wire/src/code.rs` by its test.\n",
        );
        for code in Code::ALL {
            let repeat = match code.retry() {
                Retry::Same => "useful at once: the same call",
                Retry::Later => "useful later, or at another address",
                Retry::NewAttempt => "useful with a new attempt",
                Retry::Never => "never useful",
            };
            let (status, exit, meaning) = (code.status(), code.exit(), code.meaning());
            page += &format!("\n## {code}\n\n{meaning}\n\nHTTP {status} · exit code {exit} · a repeat is {repeat}\n");
        }
        page
    }

    #[test]
    fn no_code_is_a_success() {
        // Fail closed: tools that take any 2xx for yes must never see one here.
        assert!(Code::ALL.iter().all(|code| code.status() >= 400 && code.exit() != 0));
    }
}
