package tokens

import "strings"

// The keys of server tokens of k3s or RKE2 in the Secret with the tokens of a cluster: that of the cluster, and one that is about to
// replace it. Replaced ones have the same keys with a dash and a time.
const (
	ServerKey    = "serverToken"
	NewServerKey = "newServerToken"
)

// HasServerToken reports whether the data of such a Secret has a server token with a hash, of which the beginning is enough. The hash may
// be that of the password in the token: a token as k3s and RKE2 print it begins with K10, the hash of an authority and a user.
func HasServerToken(data map[string][]byte, hash string) bool {
	for key, token := range data {
		if (strings.HasPrefix(key, ServerKey) || strings.HasPrefix(key, NewServerKey)) && hasHash(string(token), hash) {
			return true
		}
	}
	return false
}

func hasHash(token, hash string) bool {
	for more := true; more; _, token, more = strings.Cut(token, ":") {
		if strings.HasPrefix(Hash(token), hash) {
			return true
		}
	}
	return false
}
