package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// secretFieldsJSON defines the members of Envoy's messages that contain secrets, at any depth.
type secretFieldsJSON struct {
	PrivateKey     document.Node `key:"private_key,privateKey" doc:"Private key of a certificate." secret:"true"`
	Password       document.Node `key:"password" doc:"Password of a private key." secret:"true"`
	Keystore       document.Node `key:"pkcs12" doc:"Certificate and its private key." secret:"true"`
	TicketKeys     document.Node `key:"session_ticket_keys,sessionTicketKeys" doc:"TLS session ticket keys." secret:"true"`
	Secret         document.Node `key:"generic_secret,genericSecret" doc:"Generic secret." secret:"true"`
	LocalKeys      document.Node `key:"local_jwks,localJwks" doc:"Keys of tokens, which may be symmetric." secret:"true"`
	Metadata       document.Node `key:"initial_metadata,initialMetadata" doc:"Metadata of gRPC requests, which may contain credentials." secret:"true"`
	CallCredential document.Node `key:"call_credentials,callCredentials" doc:"Credentials of gRPC requests." secret:"true"`
}

// markSecrets marks the secrets in a part of the file that other packages parse, so that Redacted
// omits them.
func markSecrets(n document.Node) { (&secretMarker{keys: document.Keys(secretFieldsJSON{})}).mark(n) }

// secretMarker marks the keys of secretFieldsJSON as secret.
type secretMarker struct{ keys []document.Key }

func (m *secretMarker) mark(n document.Node) {
	secrets := false
	for member := range n.All() {
		m.mark(member)
		secrets = secrets || m.isSecret(member.Key())
	}
	if secrets {
		d := document.NewDecoder(&document.Report{}) // discard the Report: its errors concern the other members
		d.Decode(n, &secretFieldsJSON{})
	}
}

// isSecret reports whether a member with the name contains a secret.
func (m *secretMarker) isSecret(name string) bool {
	return slices.ContainsFunc(m.keys, func(k document.Key) bool {
		return k.Name == name || slices.Contains(k.Aliases, name)
	})
}
