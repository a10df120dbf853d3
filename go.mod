module github.com/weft-proxy/weft

go 1.26

require github.com/valyala/bytebufferpool v1.0.0 // indirect
