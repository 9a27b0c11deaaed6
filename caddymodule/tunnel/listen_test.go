package tunnel

import "testing"

func TestListenErrors(t *testing.T) {
	conn := listenLoopback(t)
	defer conn.Close()
	good := newSecrets(t)
	for name, s := range map[string]Secrets{
		"identity": {Identity: []byte("x"), Reset: good.Reset, Token: good.Token},
		"reset":    {Identity: good.Identity, Reset: []byte("short"), Token: good.Token},
		"token":    {Identity: good.Identity, Reset: good.Reset},
	} {
		if err := NewHub(Options{}).Listen(conn, s); err == nil {
			t.Errorf("bad %s: no error", name)
		}
	}
	g := newGateway(t, Options{})
	wantError(t, g.Listen(conn, good), ErrClosed)
	if g.Addr().String() != g.addr.String() || NewHub(Options{}).Addr() != nil {
		t.Errorf("address %v", g.Addr())
	}
}
