//! Tests in namespaces of their own: the test binary runs itself again inside.
//!
//! ```ignore
//! #[test]
//! fn a_sentence() {
//!     netns::inside(async || { … });
//! }
//! ```
//! Outside, [`inside`] starts this one test again under `unshare` and passes on how it ended.
//! Inside, the body is root in an empty network namespace, alone with its processes and mounts; all
//! of it goes away with the process. This takes no root where users may make namespaces.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Set for the run inside.
const MARK: &str = "CAIRN_TEST_NAMESPACE";

/// How long a test waits for what should happen at once; only a failure waits this long.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Runs the body as root of namespaces of its own.
pub fn inside<F: AsyncFnOnce()>(body: F) {
    let mut arguments = vec!["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if !rustix::process::getuid().is_root() {
        arguments.extend(["--user", "--map-root-user"]);
    }
    run(&test_name::<F>(), &arguments, async || {
        sh("mount -t tmpfs tmpfs /run && ip link set lo up");
        body().await;
    });
}

/// Runs the body in a network namespace of its own that it may not change.
pub fn inside_without_rights<F: AsyncFnOnce()>(body: F) {
    run(&test_name::<F>(), &["--user", "--net"], body);
}

fn run(test: &str, unshare: &[&str], body: impl AsyncFnOnce()) {
    if std::env::var_os(MARK).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime").block_on(body());
    }
    let binary = std::env::current_exe().expect("the test binary");
    let output = Command::new("unshare")
        .args(unshare)
        .arg(binary)
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(MARK, "1")
        .stdin(Stdio::null())
        .output()
        .expect("unshare is installed");
    let told = String::from_utf8_lossy(&output.stdout);
    print!("{told}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} failed inside its namespaces");
    assert!(told.contains("1 passed"), "{test} did not run inside its namespaces");
}

/// The path of the test that wrote this body: `it::routes::a_sentence::{{closure}}` without its ends.
fn test_name<F>() -> String {
    let path = std::any::type_name::<F>();
    let end = path.find("::{{closure}}").unwrap_or(path.len());
    path[..end].split_once("::").expect("a test lies in a module").1.to_owned()
}

/// Runs a shell script that must succeed, and returns what it printed.
pub fn sh(script: &str) -> String {
    let output = try_sh(script);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}\n{told}{}", String::from_utf8_lossy(&output.stderr));
    told
}

/// Runs a shell script.
pub fn try_sh(script: &str) -> Output {
    // Debian leaves the sbin folders out of an ordinary user's path.
    let path = format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new("bash")
        .args(["-c", script])
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .expect("bash is installed")
}

/// Waits until the script prints what is asked for; fails with what it printed last.
pub async fn until(script: &str, holds: impl Fn(&str) -> bool) {
    let mut last = String::new();
    let seen = tokio::time::timeout(DEADLINE, async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        loop {
            ticks.tick().await;
            last = sh(script);
            if holds(&last) {
                return;
            }
        }
    });
    assert!(seen.await.is_ok(), "{script} still prints:\n{last}");
}
