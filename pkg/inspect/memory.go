package inspect

import (
	"net/http"
	"runtime"

	"github.com/weft-proxy/weft/internal/admin"
)

// EnvoyMemory is the response body of /memory, in bytes. It has the format of
// envoy.admin.v3.Memory; its fields have the nearest meaning in Go's heap.
type EnvoyMemory struct {
	Allocated uint64 `json:"allocated,string"`            // objects on the heap
	HeapSize  uint64 `json:"heap_size,string"`            // address space of the heap
	Unmapped  uint64 `json:"pageheap_unmapped,string"`    // free pages that were returned to the system
	Free      uint64 `json:"pageheap_free,string"`        // free pages that were not returned
	Cache     uint64 `json:"total_thread_cache,string"`   // free space in pages that also contain objects
	Physical  uint64 `json:"total_physical_bytes,string"` // memory of the Go runtime, including stacks, that was not returned
}

// NewEnvoyMemory returns memory statistics in Envoy's format.
func NewEnvoyMemory(m *runtime.MemStats) EnvoyMemory {
	return EnvoyMemory{
		Allocated: m.HeapAlloc, HeapSize: m.HeapSys, Unmapped: m.HeapReleased, Free: m.HeapIdle - m.HeapReleased,
		Cache: m.HeapInuse - m.HeapAlloc, Physical: m.Sys - m.HeapReleased,
	}
}

// memory serves /memory.
func (s *Sources) memory(w http.ResponseWriter, _ *http.Request) {
	var m runtime.MemStats
	s.ReadMemory(&m)
	admin.WriteJSON(w, http.StatusOK, NewEnvoyMemory(&m))
}
