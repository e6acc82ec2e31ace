//! The HTTP server both services share: accept loop, problem documents, guards, shutdown.
