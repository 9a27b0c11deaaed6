package signin

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// The example of the reference implementation's README, "somesalt" and
// "password", at t=2, m=2^16, p=4.
const referenceHash = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"

func TestArgon2id(t *testing.T) {
	t.Parallel()
	h, err := parseHash(referenceHash)
	must(t, err)
	if !h.matches(deriveArgon2id, "password") {
		t.Error("the right password does not match")
	}
	if h.matches(deriveArgon2id, "Password") {
		t.Error("a wrong password matches")
	}
	fresh := newPasswordHash(deriveArgon2id, "correct horse")
	if text := fresh.String(); !strings.HasPrefix(text, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("a new hash is %q", text)
	}
	parsed, err := parseHash(fresh.String())
	if err != nil || !parsed.matches(deriveArgon2id, "correct horse") {
		t.Errorf("a new hash does not match its password: %v", err)
	}
	if again := newPasswordHash(deriveArgon2id, "correct horse"); again.String() == fresh.String() {
		t.Error("two hashes of the same password are the same: there is no salt")
	}
}

func TestParseHash(t *testing.T) {
	t.Parallel()
	const (
		salt = "c29tZXNhbHQ"
		key  = "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	)
	encoded := func(n int) string { return base64.RawStdEncoding.EncodeToString(make([]byte, n)) }
	tests := []struct {
		name, hash string
		ok         bool
	}{
		{"as written", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + key, true},
		{"at the bounds", "$argon2id$v=19$m=65536,t=8,p=4$" + encoded(64) + "$" + encoded(64), true},
		{"least", "$argon2id$v=19$m=8,t=1,p=1$" + encoded(8) + "$" + encoded(16), true},
		{"empty", "", false},
		{"another kind", "$argon2i$v=19$m=19456,t=2,p=1$" + salt + "$" + key, false},
		{"another version", "$argon2id$v=16$m=19456,t=2,p=1$" + salt + "$" + key, false},
		{"no version", "$argon2id$m=19456,t=2,p=1$" + salt + "$" + key, false},
		{"one more than allowed", "$argon2id$v=19$m=65537,t=2,p=1$" + salt + "$" + key, false},
		{"forever", "$argon2id$v=19$m=19456,t=9,p=1$" + salt + "$" + key, false},
		{"many threads", "$argon2id$v=19$m=19456,t=2,p=5$" + salt + "$" + key, false},
		{"no threads", "$argon2id$v=19$m=19456,t=2,p=0$" + salt + "$" + key, false},
		{"no passes", "$argon2id$v=19$m=19456,t=0,p=1$" + salt + "$" + key, false},
		{"too little memory for the threads", "$argon2id$v=19$m=31,t=1,p=4$" + salt + "$" + key, false},
		{"beyond 32 bits", "$argon2id$v=19$m=4294967304,t=2,p=1$" + salt + "$" + key, false},
		{"threads beyond 8 bits", "$argon2id$v=19$m=19456,t=2,p=257$" + salt + "$" + key, false},
		{"a sign", "$argon2id$v=19$m=+19456,t=2,p=1$" + salt + "$" + key, false},
		{"leading zero", "$argon2id$v=19$m=019456,t=2,p=1$" + salt + "$" + key, false},
		{"another order", "$argon2id$v=19$t=2,m=19456,p=1$" + salt + "$" + key, false},
		{"one parameter too many", "$argon2id$v=19$m=19456,t=2,p=1,x=1$" + salt + "$" + key, false},
		{"padding", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "=$" + key, false},
		{"line break", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "\n$" + key, false},
		{"bits behind the salt", "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHR$" + key, false},
		{"short salt", "$argon2id$v=19$m=19456,t=2,p=1$" + encoded(7) + "$" + key, false},
		{"short key", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + encoded(15), false},
		{"no key", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$", false},
		{"long key", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + encoded(65), false},
		{"more behind", "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + key + "$", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := parseHash(test.hash)
			if test.ok != (err == nil) {
				t.Fatalf("parseHash(%q): %v", test.hash, err)
			}
			if test.ok && h.String() != test.hash {
				t.Errorf("read %q, writes %q", test.hash, h)
			}
			if !test.ok && (!errors.Is(err, errHash) || strings.Contains(err.Error(), key)) {
				t.Errorf("error %q", err)
			}
		})
	}
}

// An accepted hash is within the bounds, and equals its own encoding.
func FuzzParseHash(f *testing.F) {
	f.Add(referenceHash)
	f.Add("$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc")
	f.Add("$argon2id$v=19$m=4294967295,t=4294967295,p=255$$")
	f.Add("$argon2id$v=19$m=,t=,p=$\r\n$\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parseHash(s)
		if err != nil {
			return
		}
		if h.memory < 8 || h.memory > maxMemory || h.passes < 1 || h.passes > maxPasses || h.threads < 1 ||
			h.threads > maxThreads {
			t.Errorf("%q has cost %+v", s, h.cost)
		}
		if len(h.salt) < minSalt || len(h.salt) > maxSalt || len(h.key) < minKey || len(h.key) > maxKey {
			t.Errorf("%q has %d bytes of salt and %d of key", s, len(h.salt), len(h.key))
		}
		if h.String() != s {
			t.Errorf("%q is written as %q", s, h)
		}
	})
}
