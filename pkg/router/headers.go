package router

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Mutation changes the headers of a message: first removals, then additions in order. A nil
// Mutation changes nothing. It is immutable.
type Mutation struct{ m *mutation }

// CompileMutation compiles a mutation of requests. Route.RewriteRequest describes its effect on
// RPC requests. In HTTP requests, Host is the request's Authority.
func CompileMutation(c config.HeaderMutation) (*Mutation, error) {
	m, err := compileMutation(&c, true)
	return &Mutation{m}, err
}

// CompileResponseMutation compiles a mutation of responses.
func CompileResponseMutation(c config.HeaderMutation) (*Mutation, error) {
	m, err := compileMutation(&c, false)
	return &Mutation{m}, err
}

// Apply changes h, which is the request or response header of x.
func (m *Mutation) Apply(x *protocol.Exchange, h *protocol.Header) {
	if m != nil {
		m.m.apply(h, x)
	}
}
