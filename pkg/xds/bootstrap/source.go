package bootstrap

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TypeSource is the source of all resources of a type, other than ADS: a file, or a server of the
// discovery service of the type.
type TypeSource struct {
	Type    string   // type URL
	Field   string   // of the bootstrap: "dynamic_resources.cds_config"
	Path    string   // of the file; "": a server
	Cluster string   // name of the cluster of the server
	Mode    ads.Mode // of the server
}

// readTypeSource reads the config source of a type of resources. It adds a source other than ADS to
// b.Sources. usesADS reports whether the source is ADS. timeout is how long to wait for the first
// response; 0 means no limit. An error is of type FieldErrors.
func (b *Bootstrap) readTypeSource(field string, data []byte, url string) (usesADS bool, timeout time.Duration, err error) {
	s := &corev3.ConfigSource{}
	if err := decodeField(field, data, s); err != nil {
		return false, 0, err
	}
	source := TypeSource{Type: url, Field: field}
	var supported string
	var errs FieldErrors
	switch kind := s.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads:
		usesADS, supported = true, "ads"
	case *corev3.ConfigSource_Path:
		source.Path, supported = kind.Path, "path" //nolint:staticcheck // files still set the deprecated field
		if source.Path == "" {
			errs = append(errs, FieldError{field + ".path", "is empty"})
		}
	case *corev3.ConfigSource_PathConfigSource:
		source.Path, supported = kind.PathConfigSource.GetPath(), "path_config_source"
		if source.Path == "" {
			errs = append(errs, FieldError{field + ".path_config_source.path", "is missing"})
		}
	case *corev3.ConfigSource_ApiConfigSource:
		supported = "api_config_source"
		if source.Mode, source.Cluster, err = b.readTypeServer(field+".api_config_source", kind.ApiConfigSource); err != nil {
			errs = append(errs, fieldErrorsOf("", err)...)
		}
	default:
		return false, 0, FieldErrors{{field, "expected ads, path_config_source or api_config_source"}}
	}
	errs = append(errs, b.checkFields(field, s, []string{supported, "resource_api_version", "initial_fetch_timeout"}, []string{"authorities"})...)
	errs = append(errs, requireV3(field+".resource_api_version", s.GetResourceApiVersion())...)
	timeout, timeoutErrs := readFetchTimeout(field, s)
	errs = append(errs, timeoutErrs...)
	if !usesADS && errs == nil {
		b.Sources = append(b.Sources, source)
	}
	return usesADS, timeout, errs.asError()
}

// readTypeServer reads a server of the discovery service of a type. An error is of type
// FieldErrors.
func (b *Bootstrap) readTypeServer(field string, api *corev3.ApiConfigSource) (mode ads.Mode, cluster string, err error) {
	switch api.GetApiType() {
	case corev3.ApiConfigSource_GRPC:
		mode = ads.StateOfTheWorld
	case corev3.ApiConfigSource_DELTA_GRPC:
		mode = ads.Delta
	default:
		return 0, "", FieldErrors{unsupportedAPIType(field, api, "GRPC or DELTA_GRPC")}
	}
	cluster, err = b.readGRPCService(field, api)
	return mode, cluster, err
}

// readFetchTimeout returns the initial_fetch_timeout of a source. 0 means no limit.
func readFetchTimeout(field string, s *corev3.ConfigSource) (timeout time.Duration, errs FieldErrors) {
	d := s.GetInitialFetchTimeout()
	switch {
	case d == nil:
		return resource.DefaultFetchTimeout, nil
	case !d.IsValid() || d.AsDuration() < 0:
		return 0, FieldErrors{{field + ".initial_fetch_timeout", fmt.Sprintf("found %v, expected a duration", d)}}
	}
	return d.AsDuration(), nil
}

// Source returns the source of a type, or nil if it is ADS or does not exist.
func (b *Bootstrap) Source(url string) *TypeSource {
	for i := range b.Sources {
		if b.Sources[i].Type == url {
			return &b.Sources[i]
		}
	}
	return nil
}

// ReadResponse reads the resources in a file: a DiscoveryResponse in its JSON form. An error is of
// type FieldErrors, with the paths of fields in the file.
func ReadResponse(data []byte) (*discoveryv3.DiscoveryResponse, error) {
	m := &discoveryv3.DiscoveryResponse{}
	err := decodeField("", data, m)
	if err == nil {
		return m, nil
	}
	errs := fieldErrorsOf("", err)
	for i := range errs {
		if len(errs[i].Field) > 0 && errs[i].Field[0] == '.' {
			errs[i].Field = errs[i].Field[1:]
		}
	}
	return nil, errs
}
