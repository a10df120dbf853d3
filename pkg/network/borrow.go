package network

import "github.com/weft-proxy/weft/pkg/buffer"

// AppendBorrowed appends prefix, which it copies, and payload, which it borrows: the caller must
// not change payload before its next call of CopyBorrowed has returned. AppendBorrowed adds nothing
// and returns false in these cases: a goroutine is writing, a write has failed, the connection is
// not a socket, or it uses TLS, where separate records for borrowed payloads would cost more than a
// copy. The caller then uses BeginFrame and EndFrame.
func (q *WriteQueue) AppendBorrowed(prefix, payload []byte) bool {
	if q.conn.raw == nil || q.conn.secure.Load() != nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing || q.err != nil {
		return false
	}
	if len(prefix) > 0 {
		piece := buffer.Get(len(prefix))
		_, _ = piece.Write(prefix) // never fails
		q.pieces = append(q.pieces, piece)
	}
	q.pieces = append(q.pieces, buffer.Borrow(payload))
	q.queued.Add(int64(len(prefix) + len(payload)))
	q.borrowed++
	return true
}

// CopyBorrowed copies the borrowed bytes that are not yet written. It does not wait until the peer
// reads.
func (q *WriteQueue) CopyBorrowed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.borrowed > 0 && q.writing { // only Flush writes borrowed pieces, and it does not block
		q.cond.Wait()
	}
	q.copyBorrowedLocked()
}

// copyBorrowedLocked is CopyBorrowed for a caller that holds q.mu while no goroutine writes. Like
// BeginFrame, it puts several copies into one buffer: a separate buffer for a frame of typical size
// would be four times as large as the frame.
func (q *WriteQueue) copyBorrowedLocked() {
	if q.borrowed == 0 {
		return
	}
	kept := q.pieces[:0]
	for _, piece := range q.pieces {
		if !piece.IsBorrowed() {
			kept = append(kept, piece)
			continue
		}
		if n := len(kept); n == 0 || len(kept[n-1].Tail()) < piece.Len() {
			kept = append(kept, buffer.Get(piece.Len()))
		}
		_, _ = kept[len(kept)-1].Write(piece.Bytes()) // never fails
		piece.Release()
	}
	clear(q.pieces[len(kept):])
	q.pieces, q.borrowed = kept, 0
}
