package http2

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	const pool = "github.com/panjf2000/ants/v2.(*poolCommon)." // ants makes one that nobody asked for
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(pool+"ticktock"), goleak.IgnoreTopFunction(pool+"purgeStaleWorkers"))
}
