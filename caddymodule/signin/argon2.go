package signin

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// cost is the set of argon2id parameters.
type cost struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

// currentCost is OWASP's first recommendation of 2026: it fits a small machine and
// still makes guessing expensive.
var currentCost = cost{memory: 19 * 1024, passes: 2, threads: 1}

// The maximum parameters of a stored hash: write access to the store must not be
// enough to exhaust the gateway's memory by signing in.
const (
	maxMemory  = 64 * 1024 // KiB
	maxPasses  = 8
	maxThreads = 4

	saltSize, minSalt, maxSalt = 16, 8, 64
	keySize, minKey, maxKey    = 32, 16, 64
)

// derive computes argon2id. Tests replace it to count calls.
type derive func(password, salt []byte, c cost, size int) []byte

func deriveArgon2id(password, salt []byte, c cost, size int) []byte {
	return argon2.IDKey(password, salt, c.passes, c.memory, c.threads, uint32(size))
}

// passwordHash is a stored password, in the PHC string format:
//
//	$argon2id$v=19$m=19456,t=2,p=1$SALT$KEY
type passwordHash struct {
	cost
	salt, key []byte
}

func (h passwordHash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, h.threads,
		phcEncoding.EncodeToString(h.salt), phcEncoding.EncodeToString(h.key))
}

// matches reports whether password has this hash. It always derives exactly once.
func (h passwordHash) matches(derive derive, password string) bool {
	return subtle.ConstantTimeCompare(derive([]byte(password), h.salt, h.cost, len(h.key)), h.key) == 1
}

func newPasswordHash(derive derive, password string) passwordHash {
	h := passwordHash{cost: currentCost, salt: make([]byte, saltSize)}
	rand.Read(h.salt) // never fails, see its documentation
	h.key = derive([]byte(password), h.salt, h.cost, keySize)
	return h
}

// newDecoy returns a hash that matches no password. It is compared with when the
// user does not exist.
func newDecoy() passwordHash {
	h := passwordHash{cost: currentCost, salt: make([]byte, saltSize), key: make([]byte, keySize)}
	rand.Read(h.salt)
	rand.Read(h.key)
	return h
}

var phcEncoding = base64.RawStdEncoding.Strict()

// errHash includes no part of the hash, since it is logged.
var errHash = errors.New("the stored hash of the password cannot be read")

// parseHash accepts exactly the output of String.
func parseHash(s string) (passwordHash, error) {
	parts := strings.Split(s, "$")
	if len(s) > 512 || len(parts) != 6 {
		return passwordHash{}, errHash
	}
	var h passwordHash
	_, costErr := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.threads)
	salt, saltErr := phcEncoding.DecodeString(parts[4])
	key, keyErr := phcEncoding.DecodeString(parts[5])
	h.salt, h.key = salt, key
	switch {
	case costErr != nil || saltErr != nil || keyErr != nil:
	case h.memory > maxMemory || h.passes < 1 || h.passes > maxPasses || h.threads < 1 || h.threads > maxThreads:
	case h.memory < 8*uint32(h.threads): // RFC 9106 §3.1: at least 8 KiB for each thread
	case len(salt) < minSalt || len(salt) > maxSalt || len(key) < minKey || len(key) > maxKey:
	case h.String() != s: // the decoders are more lenient and ignore the rest
	default:
		return h, nil
	}
	return passwordHash{}, errHash
}
