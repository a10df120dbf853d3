package main

import (
	"net/http"
	"testing"

	"github.com/weft-proxy/weft/pkg/inspect"
)

// TestAdminClientReadsAcceptedCommands verifies that the client reads the response to a command that
// Weft accepted but has not finished: status 202.
func TestAdminClientReadsAcceptedCommands(t *testing.T) {
	a := adminClient{address: startWeft(t, exampleConfig)}
	var got inspect.Status
	if err := a.do(t.Context(), http.MethodPost, "/drain", nil, &got); err != nil || got.State != inspect.Draining {
		t.Errorf("response %+v, %v, want the state %q", got, err, inspect.Draining)
	}
}
