//! Reads snapshots: the whole file is verified before any of it is handed out.

use super::frame::{HEADER_BYTES, Header, Kind, PIECE_BYTES_MAX, Totals};
use super::{FORMAT, file_name, list};
use crate::disk::Disk;
use crate::fault::Fault;
use crate::log::Position;
use crate::preamble::{PREAMBLE_BYTES, Preamble};

/// Opens the newest finished snapshot and verifies all of it; `None` if there is no snapshot. A
/// damaged one is a fault even if there is an older one: the log may only continue from the newest.
pub fn open_latest<D: Disk>(disk: &D) -> Result<Option<SnapshotReader<D>>, Fault> {
    let Some(index) = list(disk)?.last().copied() else { return Ok(None) };
    let name = file_name(index);
    let file = disk.open(&name).map_err(Fault::failed("open", &name))?;
    let source = Source { disk: disk.clone(), file, name };
    let reader = SnapshotReader::verify(source)?;
    if reader.position.index != index {
        let what = "the snapshot belongs to another index";
        return Err(Fault::damaged(&reader.source.name, 0, what));
    }
    Ok(Some(reader))
}

/// Opens a snapshot that was written as a stream of bytes, in a file of any name, and verifies all
/// of it.
pub fn open_backup<D: Disk>(disk: &D, name: &str) -> Result<SnapshotReader<D>, Fault> {
    let file = disk.open(name).map_err(Fault::failed("open", name))?;
    SnapshotReader::verify(Source { disk: disk.clone(), file, name: name.to_owned() })
}

/// A file to read frames from.
#[derive(Debug)]
struct Source<D: Disk> {
    disk: D,
    file: D::File,
    name: String,
}

impl<D: Disk> Source<D> {
    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.fill(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.disk.read_at(&self.file, offset, bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Fault::damaged(&self.name, offset, "the snapshot ends too early")
            }
            _ => Fault::unreadable(&self.name)(error),
        })
    }

    /// Reads the frame at that offset: returns its header and the chain after it, with the payload
    /// in `payload`.
    fn frame(
        &self,
        offset: u64,
        before: u32,
        payload: &mut Vec<u8>,
    ) -> Result<(Header, u32), Fault> {
        let wrong = || Fault::damaged(&self.name, offset, "a frame of the snapshot is wrong");
        let header = Header::parse(self.read(offset)?).ok_or_else(wrong)?;
        payload.resize(header.payload_bytes.min(PIECE_BYTES_MAX), 0);
        self.fill(offset + HEADER_BYTES as u64, payload)?;
        let crc = header.verify(before, payload).ok_or_else(wrong)?;
        Ok((header, crc))
    }
}

/// The offset of a piece, and the checksum before it.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    before: u32,
}

/// A verified snapshot, open for reading. It stays valid if a newer one takes its place meanwhile.
#[derive(Debug)]
pub struct SnapshotReader<D: Disk> {
    source: Source<D>,
    position: Position,
    meta: Vec<u8>,
    places: Vec<Place>,
    totals: Totals,
    crc: u32,
}

impl<D: Disk> SnapshotReader<D> {
    fn verify(source: Source<D>) -> Result<Self, Fault> {
        let bytes: [u8; PREAMBLE_BYTES] = source.read(0)?;
        let preamble = Preamble::parse(&bytes, FORMAT)
            .map_err(|error| error.fault(&source.name, FORMAT.version))?;
        let mut reader = Self {
            source,
            position: Position { index: preamble.first, term: preamble.second },
            meta: Vec::new(),
            places: Vec::new(),
            totals: Totals::default(),
            crc: preamble.crc(FORMAT.magic),
        };
        let end = reader.verify_frames()?;
        let size = reader.source.disk.size(&reader.source.file);
        if size.map_err(Fault::unreadable(&reader.source.name))? != end {
            let what = "there is data after the end of the snapshot";
            return Err(Fault::damaged(&reader.source.name, end, what));
        }
        Ok(reader)
    }

    /// Verifies all frames, and returns where they end.
    fn verify_frames(&mut self) -> Result<u64, Fault> {
        let mut offset = PREAMBLE_BYTES as u64;
        let mut payload = Vec::new();
        let (mut header, mut crc) = self.source.frame(offset, self.crc, &mut payload)?;
        if header.kind != Kind::Meta {
            return Err(self.out_of_order(offset));
        }
        self.meta.clone_from(&payload);
        loop {
            self.crc = crc;
            offset += (HEADER_BYTES + header.payload_bytes) as u64;
            (header, crc) = self.source.frame(offset, self.crc, &mut payload)?;
            match header.kind {
                Kind::Piece if header.number == self.totals.pieces => {
                    self.places.push(Place { offset, before: self.crc });
                    self.totals.pieces += 1;
                    self.totals.bytes += header.payload_bytes as u64;
                }
                Kind::End if payload == self.totals.encode() => break,
                _ => return Err(self.out_of_order(offset)),
            }
        }
        Ok(offset + (HEADER_BYTES + header.payload_bytes) as u64)
    }

    fn out_of_order(&self, offset: u64) -> Fault {
        Fault::damaged(&self.source.name, offset, "a frame is not the one that should be there")
    }

    /// The snapshot's position in the log.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The metadata that its writer passed.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// The number of pieces.
    pub fn pieces_len(&self) -> u64 {
        self.totals.pieces
    }

    /// The size of all pieces together, in bytes.
    pub fn pieces_bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// The checksum over position, metadata and pieces: the same on every node that has this
    /// snapshot.
    pub fn checksum(&self) -> u32 {
        self.crc
    }

    /// Reads one piece, starting at 0, and verifies it again; `None` after the last.
    pub fn piece(&self, number: u64) -> Result<Option<Vec<u8>>, Fault> {
        let place = usize::try_from(number).ok().and_then(|number| self.places.get(number));
        let Some(place) = place else { return Ok(None) };
        let mut payload = Vec::new();
        self.source.frame(place.offset, place.before, &mut payload)?;
        Ok(Some(payload))
    }

    /// All pieces in order.
    pub fn pieces(&self) -> Pieces<'_, D> {
        Pieces { reader: self, next: 0 }
    }
}

/// The pieces of a snapshot, read one by one.
#[derive(Debug)]
pub struct Pieces<'a, D: Disk> {
    reader: &'a SnapshotReader<D>,
    next: u64,
}

impl<D: Disk> Iterator for Pieces<'_, D> {
    type Item = Result<Vec<u8>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.reader.piece(self.next).transpose()?;
        self.next += 1;
        Some(piece)
    }
}
