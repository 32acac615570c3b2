//! A real Redis server on a free port. It persists nothing, and ends with the test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// No other test may choose a port between the choice of a free one and its use.
static STARTING: Mutex<()> = Mutex::new(());

pub(crate) struct Running {
    process: Child,
    port: u16,
}

impl Running {
    pub(crate) fn start() -> Self {
        let _alone = STARTING.lock().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1", "--dir"])
            .arg(std::env::temp_dir())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed for this test");
        let running = Self { process, port };
        for _ in 0..400 {
            if TcpStream::connect(running.address()).is_ok() {
                return running;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("redis-server does not answer");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
