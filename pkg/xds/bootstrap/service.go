package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkFields finds the fields of m that are set and not in supportedFields. It returns those in
// rejectedFields as errors, and records the others as ignored.
func (b *Bootstrap) checkFields(field string, m proto.Message, supportedFields, rejectedFields []string) (errs FieldErrors) {
	set := map[string]bool{}
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		set[string(f.Name())] = true
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		switch {
		case slices.Contains(supportedFields, name):
		case slices.Contains(rejectedFields, name):
			errs = append(errs, FieldError{field + "." + name, "is not supported"})
		default:
			b.Ignored = append(b.Ignored, FieldError{Field: field + "." + name})
		}
	}
	return errs
}

// requireV3 rejects versions of the API other than V3 and AUTO.
func requireV3(field string, v corev3.ApiVersion) (errs FieldErrors) {
	if v != corev3.ApiVersion_V3 && v != corev3.ApiVersion_AUTO {
		errs = FieldErrors{{field, fmt.Sprintf("%v is not supported, expected V3", v)}}
	}
	return errs
}

// readADS reads a config source that must be ADS. optional lists fields that the caller reads;
// other fields are ignored or rejected. An error is of type FieldErrors.
func (b *Bootstrap) readADS(field string, data []byte, optional ...string) (*corev3.ConfigSource, error) {
	s := &corev3.ConfigSource{}
	if err := decodeField(field, data, s); err != nil {
		return nil, err
	}
	if s.GetAds() == nil {
		return nil, FieldErrors{{field, "expected ads"}}
	}
	errs := b.checkFields(field, s, append(optional, "ads", "resource_api_version"), []string{"authorities"})
	errs = append(errs, requireV3(field+".resource_api_version", s.GetResourceApiVersion())...)
	return s, errs.asError()
}

// readInitialFetchTimeout reads a config source that must be ADS and returns its
// initial_fetch_timeout. 0 means no limit. An error is of type FieldErrors.
func (b *Bootstrap) readInitialFetchTimeout(field string, data []byte) (timeout time.Duration, err error) {
	source, err := b.readADS(field, data, "initial_fetch_timeout")
	if err != nil {
		return 0, err
	}
	timeout, errs := readFetchTimeout(field, source)
	return timeout, errs.asError()
}

// readGRPCService reads the gRPC service of a source. It returns the name of the cluster and
// completes its target. An error is of type FieldErrors.
func (b *Bootstrap) readGRPCService(field string, api *corev3.ApiConfigSource) (cluster string, err error) {
	errs := b.checkFields(field, api,
		[]string{"api_type", "transport_api_version", "grpc_services", "set_node_on_first_message_only"}, []string{"config_validators"})
	errs = append(errs, requireV3(field+".transport_api_version", api.GetTransportApiVersion())...)
	if n := len(api.GetGrpcServices()); n != 1 {
		return "", append(errs, FieldError{field + ".grpc_services", fmt.Sprintf("found %d services, expected exactly one", n)})
	}
	field += ".grpc_services[0]"
	s := api.GetGrpcServices()[0]
	errs = append(errs, b.checkFields(field, s, []string{"envoy_grpc", "initial_metadata"}, []string{"google_grpc"})...)
	if errs != nil {
		return "", errs
	}
	metadata, errs := readMetadata(field+".initial_metadata", s.GetInitialMetadata())
	field += ".envoy_grpc"
	errs = append(errs, b.checkFields(field, s.GetEnvoyGrpc(), []string{"cluster_name", "authority", "skip_envoy_headers"}, nil)...)
	name := s.GetEnvoyGrpc().GetClusterName()
	t, ok := b.Targets[name]
	if !ok {
		errs = append(errs, FieldError{field + ".cluster_name", fmt.Sprintf("%q is not a cluster of static_resources with an address", name)})
	}
	authority := s.GetEnvoyGrpc().GetAuthority()
	if b.completeTargets[name] && (t.AuthorityOverride != authority || !maps.EqualFunc(t.Metadata, metadata, slices.Equal)) {
		errs = append(errs, FieldError{field, "authority or initial_metadata differs from the value that dynamic_resources sets for the same cluster"})
	}
	if errs != nil {
		return "", errs
	}
	if t.unusedAddresses > 0 && !b.completeTargets[name] {
		b.Ignored = append(b.Ignored, FieldError{field + ".cluster_name", fmt.Sprintf("%q has %d addresses: only the first one is used", name, 1+t.unusedAddresses)})
	}
	t.AuthorityOverride, t.Metadata = authority, metadata
	b.Targets[name], b.completeTargets[name] = t, true
	return name, nil
}

// readMetadata reads the metadata of calls. Its values may be credentials, so error texts omit
// them.
func readMetadata(field string, headers []*corev3.HeaderValue) (out map[string][]string, errs FieldErrors) {
	for i, h := range headers {
		name, value := strings.ToLower(h.GetKey()), h.GetValue()
		if value == "" {
			value = string(h.GetRawValue())
		}
		path := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case !isMetadata(name):
			errs = append(errs, FieldError{path + ".key", fmt.Sprintf("found %q, expected a gRPC metadata key for a text value", h.GetKey())})
		case strings.Contains(value, "%"):
			errs = append(errs, FieldError{path + ".value", "variables are not supported"})
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
			errs = append(errs, FieldError{path + ".value", "expected printable ASCII"})
		default:
			if out == nil {
				out = map[string][]string{}
			}
			out[name] = append(out[name], value)
		}
	}
	return out, errs
}

// isMetadata reports whether a lower-case name is valid for text metadata.
func isMetadata(name string) bool {
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && name != "te" && name != "content-type" && name != "user-agent"
}
