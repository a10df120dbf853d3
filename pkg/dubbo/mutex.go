package dubbo

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/internal/invariants"
)

// mutex is a lock with a rank. In builds with invariants, Lock panics if the goroutine already
// holds a lock of the same or a higher rank.
type mutex[R lockRank] struct {
	sync.Mutex

	holder string // ID of the goroutine that holds the lock; only with invariants
}

// lockRank is the rank of a lock: see the package comment.
type lockRank interface {
	rank1 | rank2 | rank3
	rank() int
}

type (
	rank1 struct{} // publisher, subscriber
	rank2 struct{} // registration, metadataCache, planner
	rank3 struct{} // sessions, tasks, stateWriter
)

func (rank1) rank() int { return 1 }
func (rank2) rank() int { return 2 }
func (rank3) rank() int { return 3 }

// heldRanks contains the ranks of the locks that each goroutine holds, in the order of acquisition.
//
//nolint:gochecknoglobals // the lock order check of tests; unused in production builds
var heldRanks sync.Map

// Lock locks m.
func (m *mutex[R]) Lock() {
	if !invariants.Enabled {
		m.Mutex.Lock()
		return
	}
	var r R
	id, held := goroutineID(), []int(nil)
	if ranks, ok := heldRanks.Load(id); ok {
		held, _ = ranks.([]int)
	}
	if len(held) > 0 && held[len(held)-1] >= r.rank() {
		panic(fmt.Sprintf("dubbo: a goroutine that holds locks of the ranks %v acquires a lock of rank %d", held, r.rank()))
	}
	heldRanks.Store(id, append(held, r.rank()))
	m.Mutex.Lock()
	m.holder = id
}

// Unlock unlocks m. The goroutine that locked m calls it.
func (m *mutex[R]) Unlock() {
	if invariants.Enabled {
		var r R
		ranks, _ := heldRanks.Load(m.holder)
		held, _ := ranks.([]int)
		if held = slices.DeleteFunc(held, func(rank int) bool { return rank == r.rank() }); len(held) == 0 {
			heldRanks.Delete(m.holder)
		} else {
			heldRanks.Store(m.holder, held)
		}
	}
	m.Mutex.Unlock()
}

// goroutineID returns the ID of the calling goroutine.
func goroutineID() string {
	var trace [64]byte // begins with "goroutine 7 [running]:"
	_, rest, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte(" "))
	id, _, _ := bytes.Cut(rest, []byte(" "))
	return string(id)
}
