//! Errors for the log: one line, every cause once, an API server's refusal in its own words.

use std::error::Error;
use std::fmt;

use kube::core::Status;
use kube::runtime::watcher;

/// An error and its causes in one line, outermost first.
///
/// The client's errors repeat their causes, and show a refusal of the API server as debugging text;
/// of that, only its message and code are told.
pub struct Told<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        let mut next = Some(self.0);
        while let Some(error) = next {
            let (text, cause) = tell(error);
            next = cause;
            match text {
                Some(text) if line.is_empty() => line = text,
                Some(text) if !text.is_empty() && !line.ends_with(&text) => line = format!("{line}: {text}"),
                _ => {}
            }
        }
        f.write_str(&line)
    }
}

/// What one error of the chain says, if it says anything of its own, and the next.
fn tell<'a>(error: &'a (dyn Error + 'static)) -> (Option<String>, Option<&'a (dyn Error + 'static)>) {
    // A boxed source is seen as the box.
    let boxed = error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    if let Some(error) = error.downcast_ref::<kube::Error>().or(boxed) {
        return match error {
            kube::Error::Api(status) => (Some(refusal(status)), None),
            kube::Error::Service(cause) => (None, Some(&**cause)),
            other => (Some(other.to_string()), other.source()),
        };
    }
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::WatchError(status)) => (Some(refusal(status)), None),
        Some(watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause)) => (None, Some(cause)),
        Some(watcher::Error::WatchFailed(cause)) => (Some("the watch broke off".to_owned()), Some(cause)),
        Some(watcher::Error::NoResourceVersion) | None => (Some(error.to_string()), error.source()),
    }
}

fn refusal(status: &Status) -> String {
    let said = if status.message.is_empty() { &status.reason } else { &status.message };
    format!("{said} ({})", status.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::patch::WriteError;

    fn forbidden() -> kube::Error {
        let message = "machines is forbidden: User \"u\" cannot list it";
        kube::Error::Api(Box::new(Status::failure(message, "Forbidden").with_code(403)))
    }

    fn told(error: &(dyn Error + 'static)) -> String {
        Told(error).to_string()
    }

    #[test]
    fn a_refusal_is_told_in_the_api_servers_words() {
        let want = "machines is forbidden: User \"u\" cannot list it (403)";
        assert_eq!(told(&forbidden()), want);
        assert_eq!(told(&watcher::Error::InitialListFailed(forbidden())), want);
        let refused = WriteError::Refused(Box::new(forbidden()));
        assert_eq!(told(&refused), format!("the API server did not take the write: {want}"));
    }

    #[test]
    fn a_cause_is_told_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = watcher::Error::WatchFailed(kube::Error::Service(Box::new(refused)));
        assert_eq!(told(&error), "the watch broke off: connection refused");
        let error = anyhow::anyhow!("no such file").context("cannot read a: no such file").context("--kubeconfig a");
        assert_eq!(told(error.as_ref()), "--kubeconfig a: cannot read a: no such file");
    }
}
