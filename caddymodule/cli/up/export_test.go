package up

// Configuration is what a run loads.
func Configuration(admin, database string) ([]byte, error) {
	a := addresses{hosts: []string{"127.0.0.1", "::1"}, port: 8080, tunnel: "127.0.0.1:7443", admin: admin}
	return adapt(a.caddyfile(database))
}
