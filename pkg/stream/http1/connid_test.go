package http1

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestParkedConnectionKeepsID verifies that all exchanges of a connection have the same ID, and
// that connections of other servers have other IDs.
func TestParkedConnectionKeepsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.LocalReply(200, "text/plain", strconv.FormatUint(x.Meta.Conn.ID, 10))
			return nil
		})}
		counts := map[string]int{}
		for range 2 { // two connections, each with its own server
			client, done := serveInMemory(o)
			for range 2 {
				go io.WriteString(client, get) // a failure shows in the response
				response, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil {
					t.Fatal(err)
				}
				id, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				counts[string(id)]++
				time.Sleep(2 * parkAfter) // synthetic time
			}
			_ = client.Close()
			<-done
		}
		for id, n := range counts {
			if n != 2 || id == "0" {
				t.Errorf("connection IDs of the exchanges: %v, want two IDs, each twice", counts)
				break
			}
		}
	})
}
