//! Binding an address, or saying in a sentence why not and what to change.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Callers that may wait to be accepted; the system may allow fewer
/// (`net.core.somaxconn`). Participants of a barrier come all at once, and a
/// handshake that finds no room is tried again only after a second.
const BACKLOG: u32 = 4_096;

/// Why nothing listens. Each sentence names the option to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address can be reached from other machines, and nobody said that is meant.
    #[error(
        "refused to listen on {addr}: it can be reached from other machines, and there is no access control; \
         set `{option}` to a loopback address such as 127.0.0.1:{port}, or set `allow_remote = true` if everybody \
         who reaches this machine may do everything",
        port = addr.port()
    )]
    Remote {
        /// The address.
        addr: SocketAddr,
        /// The option it came from.
        option: String,
    },
    /// Somebody else listens there.
    #[error("port {port} of {ip} is taken by another process; stop it, or move this one with `{option}`",
        port = addr.port(), ip = addr.ip())]
    Taken {
        /// The address.
        addr: SocketAddr,
        /// The option it came from.
        option: String,
    },
    /// The system refuses.
    #[error("listen on {addr} (set by `{option}`)")]
    Refused {
        /// The address.
        addr: SocketAddr,
        /// The option it came from.
        option: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Binds `addr`. `option` is the name under which the address is configured,
/// for the sentences. Only loopback unless `allow_remote`.
///
/// # Errors
/// See [`ListenError`]; none of them is cured by trying again.
pub async fn bind(addr: SocketAddr, allow_remote: bool, option: &str) -> Result<TcpListener, ListenError> {
    let option = option.to_owned();
    if !allow_remote && !addr.ip().to_canonical().is_loopback() {
        return Err(ListenError::Remote { addr, option });
    }
    listen(addr).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken { addr, option },
        _ => ListenError::Refused { addr, option, source },
    })
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart must not wait until the system forgets the connections before.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_machines_are_let_in_only_when_that_is_said() {
        let addr: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let refused = bind(addr, false, "listen").await.unwrap_err().to_string();
        assert!(refused.contains("allow_remote = true") && refused.contains("`listen`"), "{refused}");
        assert!(bind(addr, true, "listen").await.is_ok());
    }

    /// A plain bind has room for about a hundred.
    #[tokio::test]
    async fn a_crowd_that_comes_at_once_finds_room() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let crowd = allowed.trim().parse::<usize>().unwrap().min(400);
        let listener = bind("127.0.0.1:0".parse().unwrap(), false, "listen").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connect = futures::future::try_join_all((0..crowd).map(|_| tokio::net::TcpStream::connect(addr)));
        let connected = tokio::time::timeout(std::time::Duration::from_secs(10), connect).await;
        assert_eq!(connected.expect("nobody is kept waiting").unwrap().len(), crowd);
    }

    #[tokio::test]
    async fn a_taken_port_is_named_with_the_option_that_moves_it() {
        let first = bind("127.0.0.1:0".parse().unwrap(), false, "listen").await.unwrap();
        let addr = first.local_addr().unwrap();
        let taken = bind(addr, false, "--port").await.unwrap_err().to_string();
        assert!(taken.contains(&addr.port().to_string()) && taken.contains("`--port`"), "{taken}");
    }
}
