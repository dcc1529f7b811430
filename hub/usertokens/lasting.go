package usertokens

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// Issue signs a token of a user for one management Cluster. id is its name; a lasting one is good only as long as the Token of that name is
// there.
type Issue func(u user.Info, cluster string, ttl time.Duration, id string, lasting bool) (string, error)

// Lasting is a token that lasts, to be made.
type Lasting struct {
	User        user.Info
	Cluster     *managementv3.Cluster
	TTL         time.Duration
	Description string
	// Labels are put on the Token.
	Labels map[string]string
}

// Make makes the Token and returns it with the token itself, which is not kept anywhere. The Token goes with its management Cluster.
func (l Lasting) Make(ctx context.Context, c client.Client, issue Issue, now time.Time) (string, *managementv3.Token, error) {
	name := newID()
	token, err := issue(l.User, l.Cluster.Name, l.TTL, name, true)
	if err != nil {
		return "", nil, fmt.Errorf("signing a token: %w", err)
	}
	object := &managementv3.Token{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: l.Labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: managementv3.GroupVersion.String(), Kind: "Cluster", Name: l.Cluster.Name, UID: l.Cluster.UID,
			}},
		},
		Spec: managementv3.TokenSpec{
			ClusterName: l.Cluster.Name,
			User:        managementv3.TokenUser{Username: l.User.GetName(), UID: l.User.GetUID(), Groups: l.User.GetGroups()},
			ExpiresAt:   metav1.NewTime(now.Add(l.TTL)),
			Hash:        Hash(token),
			Description: l.Description,
		},
	}
	if err := c.Create(ctx, object); err != nil {
		return "", nil, fmt.Errorf("writing Token %s: %w", name, err)
	}
	return token, object, nil
}

// Hash is what is kept of a token. A token is signed and holds random bits, so that nothing can be learned from it.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newID is a name that no other token has.
func newID() string {
	raw := make([]byte, 10)
	_, _ = rand.Read(raw) // never fails
	return "token-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))
}
