package http2

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The package ants starts goroutines for its default pool.
	const pool = "github.com/panjf2000/ants/v2.(*poolCommon)."
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(pool+"ticktock"), goleak.IgnoreTopFunction(pool+"purgeStaleWorkers"))
}
