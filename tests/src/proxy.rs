//! A proxy between two ends of a TCP connection, which can be told to trouble
//! it: each way for itself, while connections are open.
//!
//! Why not toxiproxy (tried at 2.5.0, read at 2.12.0): to end a toxic whose
//! client has left meanwhile hangs its API, since the toxic still holds bytes
//! that nobody reads any more; and cut connections are just what is tested here.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Bytes that are read at once.
const CHUNK: usize = 32 * 1024;

/// What becomes of the bytes of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They come through.
    #[default]
    Free,
    /// They are held, and come through later: as TCP repeats them after a cut.
    Held,
    /// They are gone, and nobody is told before the connection is closed, which
    /// it is when this is over.
    Lost,
    /// They come through so much later, give or take half of it.
    Slow(Duration),
    /// So many KiB a second come through.
    Throttled(u32),
}

/// What a proxy does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// With what is asked: the bytes of whoever opens connections.
    pub ask: Flow,
    /// With what is answered.
    pub answer: Flow,
    /// Every connection is reset.
    pub reset: bool,
    /// Nobody listens, and what was open is closed.
    pub refused: bool,
}

/// A proxy, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    conduct: watch::Sender<Conduct>,
    task: AbortHandle,
}

impl Proxy {
    /// Listens on a port of this machine for what is meant for `upstream`, a
    /// `host:port`.
    ///
    /// # Errors
    /// The port can't be listened on.
    pub async fn start(port: u16, upstream: String) -> anyhow::Result<Self> {
        let listener = listen(port).await?;
        let (conduct, watched) = watch::channel(Conduct::default());
        let task = tokio::spawn(serve(port, listener, upstream, watched)).abort_handle();
        Ok(Self { conduct, task })
    }

    /// From now on it does this.
    pub fn conduct(&self, conduct: Conduct) {
        self.conduct.send_replace(conduct);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await.with_context(|| format!("listen on port {port}"))
}

async fn serve(port: u16, listener: TcpListener, upstream: String, mut conduct: watch::Receiver<Conduct>) {
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        let refused = conduct.borrow_and_update().refused;
        match (&listener, refused) {
            (Some(_), true) => {
                listener = None;
                connections.abort_all();
            }
            // Its port is nobody else's, so that it is free again at once.
            (None, false) => listener = listen(port).await.ok(),
            _ => {}
        }
        let accept = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = conduct.changed() => if changed.is_err() { return },
            accepted = accept => if let Ok((caller, _)) = accepted {
                connections.spawn(connect(caller, upstream.clone(), conduct.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(caller: TcpStream, upstream: String, mut conduct: watch::Receiver<Conduct>) {
    let Ok(called) = TcpStream::connect(&upstream).await else { return };
    let _ = (caller.set_nodelay(true), called.set_nodelay(true));
    let (mut from_caller, mut to_caller) = caller.into_split();
    let (mut from_called, mut to_called) = called.into_split();
    let ask = pump(&mut from_caller, &mut to_called, conduct.clone(), |conduct| conduct.ask);
    let answer = pump(&mut from_called, &mut to_caller, conduct.clone(), |conduct| conduct.answer);
    tokio::select! {
        _ = async { tokio::try_join!(ask, answer) } => return,
        _ = conduct.wait_for(|conduct| conduct.reset) => {}
    }
    // Zero seconds to linger: the other end is told that it was reset.
    let _ = (from_caller.as_ref().set_zero_linger(), from_called.as_ref().set_zero_linger());
    // Dropped, these would say a friendly goodbye first.
    to_caller.forget();
    to_called.forget();
}

/// Carries bytes one way until they end. An error closes the connection.
async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut conduct: watch::Receiver<Conduct>,
    way: fn(&Conduct) -> Flow,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await?;
        loop {
            let flow = way(&conduct.borrow_and_update());
            match flow {
                Flow::Free => break,
                Flow::Held => {
                    let _ = conduct.wait_for(|conduct| way(conduct) != Flow::Held).await;
                }
                Flow::Lost => {
                    let _ = conduct.wait_for(|conduct| way(conduct) != Flow::Lost).await;
                    return Err(std::io::ErrorKind::ConnectionAborted.into());
                }
                Flow::Slow(by) => {
                    tokio::time::sleep(by.mul_f64(rand::random_range(0.5..=1.5))).await;
                    break;
                }
                Flow::Throttled(rate) => {
                    tokio::time::sleep(Duration::from_secs_f64(read as f64 / 1024.0 / f64::from(rate.max(1)))).await;
                    break;
                }
            }
        }
        match read {
            0 => return to.shutdown().await,
            read => to.write_all(&chunk[..read]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Port;
    use crate::until::DEADLINE;

    /// A service that answers every line with itself, behind a proxy.
    async fn echo() -> (Proxy, Port) {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = service.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = service.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = caller.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        let port = Port::reserve().unwrap();
        (Proxy::start(port.number, address).await.unwrap(), port)
    }

    async fn call(port: &Port) -> TcpStream {
        TcpStream::connect(("127.0.0.1", port.number)).await.unwrap()
    }

    async fn answer(stream: &mut TcpStream) -> std::io::Result<u8> {
        tokio::time::timeout(DEADLINE, stream.read_u8()).await.expect("an answer or its end")
    }

    async fn is_silent(stream: &mut TcpStream) -> bool {
        tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await.is_err()
    }

    #[tokio::test]
    async fn what_was_held_comes_in_its_order() {
        for held in
            [Conduct { ask: Flow::Held, ..Conduct::default() }, Conduct { answer: Flow::Held, ..Conduct::default() }]
        {
            let (proxy, port) = echo().await;
            let mut stream = call(&port).await;
            stream.write_u8(1).await.unwrap();
            assert_eq!(answer(&mut stream).await.unwrap(), 1);
            proxy.conduct(held);
            stream.write_u8(2).await.unwrap();
            assert!(is_silent(&mut stream).await);
            stream.write_u8(3).await.unwrap();
            proxy.conduct(Conduct::default());
            assert_eq!((answer(&mut stream).await.unwrap(), answer(&mut stream).await.unwrap()), (2, 3));
        }
    }

    #[tokio::test]
    async fn a_caller_that_left_while_it_was_cut_off_hinders_nobody() {
        let (proxy, port) = echo().await;
        proxy.conduct(Conduct { answer: Flow::Held, ..Conduct::default() });
        let mut leaves = call(&port).await;
        leaves.write_all(&[7; 100_000]).await.unwrap();
        drop(leaves);
        proxy.conduct(Conduct::default());
        let mut stream = call(&port).await;
        stream.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn what_was_lost_ends_the_connection_afterwards() {
        let (proxy, port) = echo().await;
        let mut stream = call(&port).await;
        proxy.conduct(Conduct { ask: Flow::Lost, ..Conduct::default() });
        stream.write_u8(1).await.unwrap();
        assert!(is_silent(&mut stream).await);
        proxy.conduct(Conduct::default());
        assert!(answer(&mut stream).await.is_err());
    }

    #[tokio::test]
    async fn connections_are_reset_or_refused_and_then_there_again() {
        let (proxy, port) = echo().await;
        let mut stream = call(&port).await;
        stream.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap(), 1);
        proxy.conduct(Conduct { reset: true, ..Conduct::default() });
        assert_eq!(answer(&mut stream).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        proxy.conduct(Conduct { refused: true, ..Conduct::default() });
        crate::until::until("it is refused", || async {
            let refused = TcpStream::connect(("127.0.0.1", port.number)).await.is_err();
            refused.then_some(()).ok_or("it is not")
        })
        .await
        .unwrap();
        proxy.conduct(Conduct::default());
        crate::until::until("it is there again", || TcpStream::connect(("127.0.0.1", port.number))).await.unwrap();
    }
}
