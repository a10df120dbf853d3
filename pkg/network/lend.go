package network

import "github.com/weft-proxy/weft/pkg/buffer"

// AppendBorrowed is Begin and End of two parts, of which the second, whole, is lent: it is not
// copied and must not change until Own has returned, which is to be called soon. False:
// nothing was added; then it is for Begin and End to take what there is to send. So it is
// while somebody writes, if nothing can be written, or not from here: over TLS, frames
// that are not gathered take more records, which is dearer than the copy.
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

// CopyBorrowed keeps what was lent and not yet written. It does not wait for the peer.
func (o *WriteQueue) CopyBorrowed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.borrowed > 0 && o.writing { // only Flush has any in its hands, and does not wait
		o.room.Wait()
	}
	o.own()
}

// own is Own while nobody writes; o.mu is held. What it keeps it gathers, as Begin does: a
// frame of the usual size, in a buffer of its own, would take four times its size.
func (o *WriteQueue) own() {
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
