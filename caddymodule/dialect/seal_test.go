package dialect

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestSealer(t *testing.T) {
	other, err := NewSealer([]byte("another gateway's secret"))
	if err != nil {
		t.Fatal(err)
	}
	mine := &Env{Sealer: testSealer, Account: "acme"}
	for _, text := range []string{"", "hm", strings.Repeat("né ", 10_000)} {
		seal := string(mine.seal([]byte("x"), reasoningMark, []byte(text)))[1:]
		if got := mine.unseal(reasoningMark, seal); got != text {
			t.Fatalf("opened %d bytes, sealed %d", len(got), len(text))
		}
		if again := string(mine.seal(nil, reasoningMark, []byte(text))); again != seal {
			t.Error("the same text is sealed in another way, so that a longer history differs from a shorter one")
		}
		if text == "" {
			continue
		}
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(seal, reasoningMark))
		if err != nil || strings.Contains(string(raw), text[:2]) {
			t.Errorf("%v, or the text can be read", err)
		}
		for who, opened := range map[string]string{
			"another gateway":  (&Env{Sealer: other, Account: "acme"}).unseal(reasoningMark, seal),
			"another account":  (&Env{Sealer: testSealer, Account: "acm"}).unseal(reasoningMark, seal),
			"no account":       (&Env{Sealer: testSealer, Account: ""}).unseal(reasoningMark, seal),
			"for another use":  mine.unseal(compactionMark, seal),
			"with its mark":    mine.unseal(compactionMark, compactionMark+strings.TrimPrefix(seal, reasoningMark)),
			"without its mark": mine.unseal("", seal),
		} {
			if opened != "" {
				t.Errorf("%s opens it", who)
			}
		}
	}
}

// A sealed text that was changed in any way is ignored.
func TestForgedSeals(t *testing.T) {
	mine := &Env{Sealer: testSealer, Account: "acme"}
	seal := mine.seal(nil, carryingMark, []byte("thinking"))
	for i := range seal {
		for _, c := range []byte{'A', 'B', '_', '!', 0} {
			forged := append([]byte{}, seal...)
			if forged[i] == c {
				continue
			}
			// The last letter encodes fewer than six bits.
			if forged[i] = c; mine.unseal(carryingMark, string(forged)) != "" && i < len(seal)-1 {
				t.Errorf("opened with another byte %d", i)
			}
		}
		if mine.unseal(carryingMark, string(seal[:i])) != "" {
			t.Errorf("opened after %d bytes", i)
		}
	}
	for _, foreign := range []string{
		"", "gw1.xyz", carryingMark, carryingMark + "AAAA", carryingMark + "!", "gAAAA",
		carryingMark + base64.RawURLEncoding.EncodeToString([]byte("0123456789abcdefthinking")),
	} {
		if mine.unseal(carryingMark, foreign) != "" {
			t.Errorf("opened %q", foreign)
		}
	}
}

// Sealed texts of other accounts, and forged ones, are ignored.
func TestSealsOfOthers(t *testing.T) {
	foreign := string((&Env{Sealer: testSealer, Account: "other"}).seal(nil, reasoningMark, []byte("secret")))
	unsealed := reasoningMark + base64.RawURLEncoding.EncodeToString([]byte("secret"))
	for _, content := range []string{foreign, unsealed} {
		up := upstreamBody(t, mustDecode(t, responsesOp,
			responsesBody(`"input":[`+itemU+`,{"type":"reasoning","summary":[],"encrypted_content":`+quoted(content)+`},`+
				itemCallA+`]`), testEnv()))
		if strings.Contains(up, "secret") || strings.Contains(up, "reasoning") {
			t.Errorf("%s goes up as %s", content, up)
		}
	}
	for mark, body := range map[string]string{
		carryingMark: messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant",` +
			`"content":[{"type":"thinking","thinking":"","signature":"SEAL"},{"type":"text","text":"a"}]}]`),
		compactionMark: responsesBody(`"input":[{"type":"compaction","encrypted_content":"SEAL"},` + itemU + `]`),
	} {
		op := responsesOp
		if mark == carryingMark {
			op = messagesOp
		}
		for account, want := range map[string]bool{"": true, "other": false} {
			seal := string((&Env{Sealer: testSealer, Account: account}).seal(nil, mark, []byte("secret")))
			up := upstreamBody(t, mustDecode(t, op, strings.Replace(body, "SEAL", seal, 1), testEnv()))
			if strings.Contains(up, "secret") != want {
				t.Errorf("%s of the account %q: told %v, want %v", mark, account, !want, want)
			}
		}
	}
}
