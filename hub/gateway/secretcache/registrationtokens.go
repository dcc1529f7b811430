package secretcache

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/hub/identity/tokens"
)

// byRegistration finds token Secrets by the public part of a token. Tokens of other hubs have none and are found by their hash.
const byRegistration = "registration"

// RegistrationIndexers are the indices that RegistrationTokens needs.
var RegistrationIndexers = cache.Indexers{byRegistration: indexRegistration}

// RegistrationTokens finds the Secrets of registration tokens in an Indexer that has RegistrationIndexers.
type RegistrationTokens struct{ cache.Indexer }

// RegistrationMatch is the Secret that holds a registration token.
type RegistrationMatch struct {
	// Secret is the token Secret.
	Secret *corev1.Secret
	// Registration is the decoded content of Secret.
	Registration tokens.Registration
	// Current is false for the previous token, which is valid for a grace period.
	Current bool
}

// Match returns the Secret of a token, or nil. The token may have expired.
func (t RegistrationTokens) Match(token string) *RegistrationMatch {
	hash := tokens.Hash(token)
	candidates, _ := t.ByIndex(byRegistration, registrationKey(tokens.Known{ID: tokens.RegistrationID(token), Hash: hash}))
	var match *RegistrationMatch
	for _, obj := range candidates {
		secret, ok := obj.(*corev1.Secret)
		if !ok {
			continue
		}
		registration := tokens.DecodeSecret(secret.Data)
		// All candidates are compared, so that the time reveals nothing about them.
		current, previous := tokens.SameHash(registration.Current.Hash, hash), tokens.SameHash(registration.Previous.Hash, hash)
		if current || previous {
			match = &RegistrationMatch{secret, registration, current}
		}
	}
	return match
}

func registrationKey(known tokens.Known) string {
	if known.ID != "" {
		return "id/" + known.ID
	}
	return "hash/" + known.Hash
}

func indexRegistration(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("indexing %T as a Secret", obj)
	}
	var keys []string
	registration := tokens.DecodeSecret(secret.Data)
	for _, known := range []tokens.Known{registration.Current, registration.Previous} {
		if known.Hash != "" {
			keys = append(keys, registrationKey(known))
		}
	}
	return keys, nil
}
