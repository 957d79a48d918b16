#![expect(clippy::disallowed_methods, reason = "shell: clients that write side by side")]
//! Many clients at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::Result;
use tokio::task::JoinSet;

/// Does the work of each number up to `count`; `workers` of them at a time.
pub(crate) async fn each<F>(
    workers: usize,
    count: usize,
    work: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicUsize::new(1));
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (next, work) = (Arc::clone(&next), work.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number > count {
                    return anyhow::Ok(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
