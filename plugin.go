// Package postern is the plug-in root: importing it registers Postern's Caddy
// modules, so that
//
//	xcaddy build --with github.com/postern-dev/postern
//
// works. The modules themselves live in package caddymodule.
package postern

import (
	_ "github.com/postern-dev/postern/caddymodule" // registers the modules
)
