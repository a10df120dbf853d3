package network

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// TestResumeKeepsDrain verifies that a drain during an interruption ends an idle connection,
// although Resume restores the read deadline.
func TestResumeKeepsDrain(t *testing.T) {
	c, _ := pair(t)
	deadline := time.Now().Add(5 * time.Second)
	c.SetReadDeadline(deadline)
	if err := c.SetIdle(true); err != nil {
		t.Fatal(err)
	}
	c.Interrupt()
	c.Drain(true)
	c.Resume()
	var buf *buffer.IoBuffer
	if _, err := c.Fill(&buf, 512); !errors.Is(err, ErrDraining) || !time.Now().Before(deadline) {
		t.Errorf("Fill = %v, %v before the read deadline; want ErrDraining before it", err, time.Until(deadline))
	}
}
