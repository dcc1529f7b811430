package usertokens

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// Issue signs a token of a user for one management Cluster. id is its name; a persistent one is valid only as long as the Token of that
// name exists.
type Issue func(u user.Info, cluster string, ttl time.Duration, id string, persistent bool) (string, error)

// Persistent describes a persistent token that is to be issued.
type Persistent struct {
	// User is whom the token is for, and Cluster the one management Cluster that it is for.
	User    user.Info
	Cluster *managementv3.Cluster
	// TTL is how long it is valid.
	TTL         time.Duration
	Description string
	// Labels are set on the Token.
	Labels map[string]string
}

// Create creates the Token and returns it with the token itself, which is stored nowhere. The Token is deleted with its management Cluster.
func (p Persistent) Create(ctx context.Context, c client.Client, issue Issue, now time.Time) (string, *managementv3.Token, error) {
	name := newID()
	token, err := issue(p.User, p.Cluster.Name, p.TTL, name, true)
	if err != nil {
		return "", nil, fmt.Errorf("signing a token: %w", err)
	}
	object := &managementv3.Token{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: p.Labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: managementv3.GroupVersion.String(), Kind: "Cluster", Name: p.Cluster.Name, UID: p.Cluster.UID,
			}},
		},
		Spec: managementv3.TokenSpec{
			ClusterName: p.Cluster.Name,
			User:        managementv3.TokenUser{Username: p.User.GetName(), UID: p.User.GetUID(), Groups: p.User.GetGroups()},
			ExpiresAt:   metav1.NewTime(now.Add(p.TTL)),
			Hash:        tokens.Hash(token),
			Description: p.Description,
		},
	}
	if err := c.Create(ctx, object); err != nil {
		return "", nil, fmt.Errorf("creating Token %s: %w", name, err)
	}
	return token, object, nil
}

// newID generates the unique name of a token.
func newID() string {
	raw := make([]byte, 10)
	_, _ = rand.Read(raw) // never fails
	return "token-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))
}
