package jwtauthn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// minRSABits is the minimum size of an RSA key in bits (RFC 7518 3.3).
const minRSABits = 2048

// key is a key of a JWKS (RFC 7517).
type key struct {
	id   string   // "": none
	algs []string // algorithms whose signatures the key may verify
	key  any      // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey or []byte
}

// keySet is immutable.
type keySet []key

// jwk is the JSON form of a key. It omits the private members of asymmetric keys.
type jwk struct {
	Type string   `json:"kty"`
	ID   string   `json:"kid"`
	Use  string   `json:"use"`
	Alg  string   `json:"alg"`
	Ops  []string `json:"key_ops"`

	N, E string // RSA
	Crv  string // EC and OKP
	X, Y string
	K    string // oct
}

// parseKeys parses a JSON key set. It skips keys that are not for signatures, have an unknown type,
// are malformed or are too weak (RFC 7517 5). If no key remains, the error wraps errUnusable.
func parseKeys(text []byte) (keySet, error) {
	var jwks struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(text, &jwks); err != nil {
		return nil, fmt.Errorf("malformed key set: %w", err)
	}
	var set keySet
	var errs []error
	for i := range jwks.Keys {
		k, err := jwks.Keys[i].parse()
		if err != nil {
			errs = append(errs, fmt.Errorf("key %d: %w", i, err))
			continue
		}
		set = append(set, k)
	}
	if len(set) == 0 {
		return nil, errors.Join(append([]error{errUnusable}, errs...)...)
	}
	return set, nil
}

// errUnusable is the error for a set without a usable key.
var errUnusable = errors.New("the key set has no key that can verify signatures")

func (j *jwk) parse() (key, error) {
	if j.Use != "" && j.Use != "sig" {
		return key{}, fmt.Errorf("use %q is not supported", j.Use)
	}
	if len(j.Ops) > 0 && !slices.Contains(j.Ops, "verify") { // RFC 7517 4.3
		return key{}, fmt.Errorf("key_ops %q do not include verify", j.Ops)
	}
	k := key{id: j.ID}
	var err error
	switch j.Type {
	case "RSA":
		k.algs = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
		k.key, err = j.rsa()
	case "EC":
		k.key, k.algs, err = j.ec()
	case "OKP":
		k.algs = []string{"EdDSA"}
		k.key, err = j.ed25519()
	case "oct":
		k.algs = []string{"HS256", "HS384", "HS512"}
		k.key, err = j.oct()
	default:
		err = fmt.Errorf("kty %q is not supported", j.Type)
	}
	if err != nil || j.Alg == "" {
		return k, err
	}
	for _, alg := range k.algs {
		if alg == j.Alg {
			k.algs = []string{alg}
			return k, nil
		}
	}
	return key{}, fmt.Errorf("alg %q is not valid for a %s key", j.Alg, j.Type)
}

func (j *jwk) rsa() (crypto.PublicKey, error) {
	n, err := decodeInt(j.N)
	if err != nil {
		return nil, err
	}
	e, err := decodeInt(j.E)
	if err != nil {
		return nil, err
	}
	if n.BitLen() < minRSABits || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
		return nil, fmt.Errorf("unsupported RSA key of %d bits with exponent %v", n.BitLen(), e)
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (j *jwk) ec() (crypto.PublicKey, []string, error) {
	var curve elliptic.Curve
	var alg string
	switch j.Crv {
	case "P-256":
		curve, alg = elliptic.P256(), "ES256"
	case "P-384":
		curve, alg = elliptic.P384(), "ES384"
	case "P-521":
		curve, alg = elliptic.P521(), "ES512"
	default:
		return nil, nil, fmt.Errorf("crv %q is not supported", j.Crv)
	}
	size := (curve.Params().BitSize + 7) / 8
	point := []byte{4} // uncompressed
	for _, text := range []string{j.X, j.Y} {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(b) != size {
			return nil, nil, fmt.Errorf("invalid coordinate of %d bytes", len(b))
		}
		point = append(point, b...)
	}
	k, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	return k, []string{alg}, err
}

func (j *jwk) ed25519() (crypto.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(j.X)
	if err != nil || j.Crv != "Ed25519" || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("unsupported OKP key with crv %q and %d bytes", j.Crv, len(b))
	}
	return ed25519.PublicKey(b), nil
}

func (j *jwk) oct() ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(j.K)
	if err != nil || len(b) < 32 { // RFC 7518 3.2
		return nil, fmt.Errorf("invalid secret of %d bytes", len(b))
	}
	return b, nil
}

func decodeInt(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return new(big.Int).SetBytes(b), nil
}

// isSame reports whether s and other are the same slice. It compares addresses, not keys. Neither
// may be empty.
func (s keySet) isSame(other keySet) bool { return &s[0] == &other[0] }

// find returns the keys that may verify signatures of algorithm alg and have the given id, or any
// id if id is "". The algorithms of a key depend on its type: a client cannot use a public key as
// an HMAC secret.
func (s keySet) find(alg, id string) []any {
	var keys []any
	for i := range s {
		if id != "" && s[i].id != id {
			continue
		}
		for _, keyAlg := range s[i].algs {
			if keyAlg == alg {
				keys = append(keys, s[i].key)
			}
		}
	}
	return keys
}
