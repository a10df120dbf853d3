package router

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Mutation changes the fields of a message: removals first, then additions in
// order. nil changes nothing. Immutable.
type Mutation struct{ m *mutation }

// CompileMutation compiles a mutation of requests: see Route.RewriteRequest for
// what it is to those of RPC. To HTTP's, Host is the request's Authority.
func CompileMutation(c config.HeaderMutation) (*Mutation, error) {
	m, err := compileMutation(&c, true, nil)
	return &Mutation{m}, err
}

// CompileResponseMutation compiles a mutation of answers.
func CompileResponseMutation(c config.HeaderMutation) (*Mutation, error) {
	m, err := compileMutation(&c, false, nil)
	return &Mutation{m}, err
}

// Apply changes h, which is a header of x.
func (m *Mutation) Apply(x *protocol.Exchange, h *protocol.Header) {
	if m != nil {
		m.m.apply(h, x)
	}
}
