//! A TCP link to a server that tests cut, or let hang as a lost network does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Bytes are taken and go nowhere.
    Hanging,
    /// Connections are ended, and new ones at once.
    Cut,
    /// Those made before an instant hang, later ones are open.
    Lost(Instant),
}

/// The link; gone with its last handle.
pub(super) struct Link {
    pub(super) url: String,
    state: watch::Sender<State>,
}

impl Link {
    /// A link to a server, by its URL.
    pub(super) async fn to(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let there: SocketAddr = url.trim_start_matches("http://").parse().unwrap();
        let state = watch::Sender::new(State::Open);
        tokio::spawn(serve(listener, there, state.subscribe()));
        Self { url: format!("http://{here}"), state }
    }

    pub(super) fn hang(&self) {
        self.state.send_replace(State::Hanging);
    }

    pub(super) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// The network forgets the connections there are, and carries new ones.
    pub(super) fn lose(&self) {
        self.state.send_replace(State::Lost(Instant::now()));
    }

    pub(super) fn open(&self) {
        self.state.send_replace(State::Open);
    }
}

async fn serve(listener: TcpListener, there: SocketAddr, state: watch::Receiver<State>) {
    while let Ok((near, _)) = listener.accept().await {
        // No more handle: the test is over.
        if state.has_changed().is_err() {
            return;
        }
        let Ok(far) = TcpStream::connect(there).await else { continue };
        let (near, far) = (near.into_split(), far.into_split());
        tokio::spawn(carry(near.0, far.1, state.clone()));
        tokio::spawn(carry(far.0, near.1, state.clone()));
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) {
    let made = Instant::now();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let now = *state.borrow_and_update();
        if now == State::Cut {
            return;
        }
        let carries = match now {
            State::Open => true,
            State::Lost(at) => made > at,
            State::Hanging | State::Cut => false,
        };
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            read = from.read(&mut buffer), if carries => match read {
                Ok(0) | Err(_) => return,
                Ok(read) => if to.write_all(&buffer[..read]).await.is_err() { return },
            },
        }
    }
}

/// Waits until something is so, and fails if it never is.
pub(super) async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let wait = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap_or_else(|_| panic!("{what}: never"));
}
