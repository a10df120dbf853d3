package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	gzipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	gunzipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/decompressor/v3"
	zstdv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/zstd/compressor/v3"
	unzstdv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/zstd/decompressor/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// compressionLibrary is an extension that compresses or decompresses one content coding.
type compressionLibrary struct {
	coding  string
	message proto.Message
	// ignored are the fields that only change the memory that Envoy uses, and the size of the
	// compressed data.
	ignored []string
}

// compressionLibraries returns the supported extensions.
func compressionLibraries() []compressionLibrary {
	return []compressionLibrary{
		{"gzip", &gzipv3.Gzip{}, []string{"memory_level", "compression_strategy", "window_bits", "chunk_size"}},
		{"gzip", &gunzipv3.Gzip{}, []string{"window_bits", "chunk_size"}},
		{"zstd", &zstdv3.Zstd{}, []string{"enable_checksum", "strategy", "chunk_size"}},
		{"zstd", &unzstdv3.Zstd{}, []string{"chunk_size"}},
	}
}

// readCompressionLibrary deletes the member key of settings, an extension, and returns its coding
// and its settings without those that are ignored. p is the reader of settings.
func (p fieldReader) readCompressionLibrary(settings *document.Value, key string) (coding string, library *document.Value, err error) {
	library = settings.Get(key).Get("typed_config")
	settings.Delete(key)
	url := library.Get("@type").Text()
	libraries := compressionLibraries()
	i := slices.IndexFunc(libraries, func(l compressionLibrary) bool {
		return strings.HasSuffix(url, "/"+string(l.message.ProtoReflect().Descriptor().FullName()))
	})
	if i < 0 {
		return "", nil, fmt.Errorf("%s.typed_config: %s is not supported", key, url)
	}
	library.Delete("@type")
	for _, field := range libraries[i].ignored {
		p.field(key).field("typed_config").ignoreKey(library, field)
	}
	return libraries[i].coding, library, nil
}

// rejectMembers returns an error for the first member of an object at a path.
func rejectMembers(v *document.Value, path string) error {
	for key := range v.Members() {
		return unsupportedKeyError(path + "." + key)
	}
	return nil
}

// adaptCompressor converts the settings of listeners and of routes. In the settings of a listener,
// the fields of response_direction_config precede the older ones at the top.
func adaptCompressor(settings *document.Value, p fieldReader) error {
	if overrides := settings.Get("overrides"); overrides != nil {
		settings.Delete("overrides")
		settings.Set("inherit", document.NewBool(true))
		response := overrides.Get("response_direction_config")
		moveKey(response, "remove_accept_encoding_header", settings, "remove_accept_encoding_header")
		overrides.Delete("response_direction_config")
		if err := rejectMembers(response, "overrides.response_direction_config"); err != nil {
			return err
		}
		return rejectMembers(overrides, "overrides")
	}
	if settings.Get("compressor_library") == nil {
		return nil // the settings of a route: disabled
	}
	coding, library, err := p.readCompressionLibrary(settings, "compressor_library")
	if err != nil {
		return err
	}
	settings.Set("encodings", document.NewList(document.NewString(coding)))
	level := library.Get("compression_level")
	library.Delete("compression_level")
	if err := rejectMembers(library, "compressor_library.typed_config"); err != nil {
		return err
	}
	switch {
	case coding == "gzip":
		settings.Set("gzip_level", document.NewNumber(strconv.Itoa(gzipLevel(level.Text()))))
	case level != nil:
		settings.Set("zstd_level", level)
	}
	if request := settings.Get("request_direction_config"); request != nil {
		if isEnabled(request.Get("common_config").Get("enabled"), true) {
			return unsupportedKeyError("request_direction_config")
		}
		settings.Delete("request_direction_config")
	}
	p.ignoreKey(settings, "choose_first") // matters only if several filters compress
	adaptResponseCompression(settings)
	return nil
}

// adaptResponseCompression converts the fields about responses.
func adaptResponseCompression(settings *document.Value) {
	moveKey(settings, "content_length", settings, "min_content_length")
	enabled := isEnabled(settings.Get("runtime_enabled"), true)
	settings.Delete("runtime_enabled")
	settings.Set("strong_etag", document.NewString("remove"))
	if response := settings.Get("response_direction_config"); response != nil {
		common := response.Get("common_config")
		settings.Delete("response_direction_config")
		for _, key := range []string{"disable_on_etag_header", "remove_accept_encoding_header"} {
			settings.Delete(key)
		}
		for _, key := range []string{"min_content_length", "content_type"} {
			settings.Delete(key)
			moveKey(common, key, settings, key)
		}
		if isEnabled(response.Get("weaken_etag_on_compress"), false) {
			settings.Set("strong_etag", document.NewString("weaken"))
		}
		response.Delete("weaken_etag_on_compress")
		enabled = isEnabled(common.Get("enabled"), true)
		response.Delete("common_config")
		for key, member := range response.Members() {
			settings.Set(key, member)
		}
	}
	if settings.Get("min_content_length") == nil {
		settings.Set("min_content_length", document.NewNumber("30"))
	}
	if settings.Get("content_type").Len() == 0 {
		settings.Set("content_type", stringList(
			"application/javascript", "application/json", "application/xhtml+xml", "image/svg+xml",
			"text/css", "text/html", "text/plain", "text/xml",
		))
	}
	if isEnabled(settings.Get("disable_on_etag_header"), false) {
		settings.Set("disable_on_weak_etag_header", document.NewBool(true))
	}
	settings.Set("compress_without_content_type", document.NewBool(true))
	settings.Set("disabled", document.NewBool(!enabled))
}

// gzipLevel returns the compression level of a name in Envoy's enumeration.
func gzipLevel(name string) int {
	switch name {
	case "BEST_SPEED":
		return 1
	case "BEST_COMPRESSION":
		return 9
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "COMPRESSION_LEVEL_")); err == nil {
		return n
	}
	return 6 // zlib's default
}

// adaptDecompressor converts the settings of a listener.
func adaptDecompressor(settings *document.Value, p fieldReader) error {
	coding, library, err := p.readCompressionLibrary(settings, "decompressor_library")
	if err != nil {
		return err
	}
	settings.Set("encodings", document.NewList(document.NewString(coding)))
	settings.Set("max_decompressed_size", document.NewNumber("0")) // Envoy has no limit
	moveKey(library, "max_inflate_ratio", settings, "max_inflate_ratio")
	if err := rejectMembers(library, "decompressor_library.typed_config"); err != nil {
		return err
	}
	request, response := settings.Get("request_direction_config"), settings.Get("response_direction_config")
	settings.Delete("request_direction_config")
	settings.Delete("response_direction_config")
	requests, responses := directionOf(request.Get("common_config")), directionOf(response.Get("common_config"))
	settings.Set("requests", requests)
	settings.Set("responses", responses)
	advertised := isEnabled(request.Get("advertise_accept_encoding"), true) && isEnabled(responses.Get("enabled"), true)
	settings.Set("advertise_accept_encoding", document.NewBool(advertised))
	return nil
}

// directionOf converts a CommonDirectionConfig, which may be absent.
func directionOf(common *document.Value) *document.Value {
	direction := document.NewObject(2)
	direction.Add("enabled", document.NewBool(isEnabled(common.Get("enabled"), true)))
	direction.Add("ignore_no_transform_header", document.NewBool(isEnabled(common.Get("ignore_no_transform_header"), false)))
	return direction
}

// isEnabled returns the value of a boolean or a RuntimeFeatureFlag, or defaultValue if it is absent.
func isEnabled(v *document.Value, defaultValue bool) bool {
	if v.Kind() == document.Object {
		v = v.Get("default_value")
	}
	if v == nil {
		return defaultValue
	}
	return v.Text() == "true"
}

// moveKey moves the member key of v, if it has one, to the member newKey of target.
func moveKey(v *document.Value, key string, target *document.Value, newKey string) {
	if member := v.Get(key); member != nil {
		v.Delete(key)
		target.Set(newKey, member)
	}
}

// stringList returns a list of strings.
func stringList(texts ...string) *document.Value {
	list := make([]*document.Value, len(texts))
	for i, text := range texts {
		list[i] = document.NewString(text)
	}
	return document.NewList(list...)
}
