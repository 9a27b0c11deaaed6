// Package caddymodule is everything of Postern that knows Caddy.
package caddymodule

import (
	_ "github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/klauspost/compress/zstd"
	_ "go.etcd.io/bbolt"
	_ "github.com/quic-go/quic-go"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/zap"
	_ "golang.org/x/term"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/time/rate"
)
