package network

import "github.com/weft-proxy/weft/pkg/buffer"

// AppendBorrowed appends before, which it copies, and whole, which it borrows: whole must not
// change until CopyBorrowed has returned, which the caller calls soon. AppendBorrowed returns false
// and adds nothing while a goroutine writes, after an error, on connections that are not sockets,
// and over TLS, where frames that are not gathered need more records, which cost more than the
// copy. The caller then uses BeginFrame and EndFrame.
func (o *WriteQueue) AppendBorrowed(before, whole []byte) bool {
	if o.conn.raw == nil || o.conn.secure.Load() != nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing || o.err != nil {
		return false
	}
	if len(before) > 0 {
		piece := buffer.Get(len(before))
		_, _ = piece.Write(before) // never fails
		o.pieces = append(o.pieces, piece)
	}
	o.pieces = append(o.pieces, buffer.Borrow(whole))
	o.queued.Add(int64(len(before) + len(whole)))
	o.borrowed++
	return true
}

// CopyBorrowed copies the borrowed bytes that are not yet written. It does not wait for the
// peer.
func (o *WriteQueue) CopyBorrowed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.borrowed > 0 && o.writing { // only Flush holds borrowed pieces, and it does not wait
		o.cond.Wait()
	}
	o.copyBorrowedLocked()
}

// copyBorrowedLocked is CopyBorrowed while no goroutine writes. The caller holds o.mu. It gathers
// the copies as BeginFrame does: a separate buffer for each frame of the usual size would take four
// times its size.
func (o *WriteQueue) copyBorrowedLocked() {
	if o.borrowed == 0 {
		return
	}
	kept := o.pieces[:0]
	for _, piece := range o.pieces {
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
	clear(o.pieces[len(kept):])
	o.pieces, o.borrowed = kept, 0
}
