package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// hiddenJSON defines the members of Envoy's messages that contain secrets, at any depth.
type hiddenJSON struct {
	PrivateKey     document.Node `key:"private_key,privateKey" doc:"Private key of a certificate." secret:"true"`
	Password       document.Node `key:"password" doc:"Password of a private key." secret:"true"`
	Keystore       document.Node `key:"pkcs12" doc:"Certificate and its private key." secret:"true"`
	TicketKeys     document.Node `key:"session_ticket_keys,sessionTicketKeys" doc:"TLS session ticket keys." secret:"true"`
	Secret         document.Node `key:"generic_secret,genericSecret" doc:"Generic secret." secret:"true"`
	LocalKeys      document.Node `key:"local_jwks,localJwks" doc:"Keys of tokens, which may be symmetric." secret:"true"`
	Metadata       document.Node `key:"initial_metadata,initialMetadata" doc:"Metadata of gRPC requests, which may contain credentials." secret:"true"`
	CallCredential document.Node `key:"call_credentials,callCredentials" doc:"Credentials of gRPC requests." secret:"true"`
}

// hide marks the secrets in a copied part of the file, so that they are not printed.
func hide(n document.Node) { (&hider{keys: document.Keys(hiddenJSON{})}).hide(n) }

// hider marks the keys of hiddenJSON as secret.
type hider struct{ keys []document.Key }

func (h *hider) hide(n document.Node) {
	secrets := false
	for member := range n.All() {
		h.hide(member)
		secrets = secrets || h.holds(member.Key())
	}
	if secrets {
		d := document.NewDecoder(&document.Report{}) // discard the reports: they are about the other members
		d.Decode(n, &hiddenJSON{})
	}
}

// holds reports whether a member with the name contains a secret.
func (h *hider) holds(name string) bool {
	return slices.ContainsFunc(h.keys, func(k document.Key) bool {
		return k.Name == name || slices.Contains(k.Aliases, name)
	})
}
