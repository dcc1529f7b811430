package usertokens

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/response"
)

// NamePath is where a user revokes a persistent token.
const NamePath = Path + "/{name}"

// authenticate returns who asks, with a slot that release gives back.
func (h *Handler) authenticate(r *http.Request) (who user.Info, release func(), err error) {
	who, err = userauth.Direct(h.Authenticator, r, h.Logger,
		"show a client certificate or a token of the hub's own Kubernetes; tokens that the hub has issued cannot be used to get others")
	if err != nil {
		return nil, nil, err
	}
	userauth.Trust(r.Context(), who)
	release, ok := h.slots.Acquire(who.GetName())
	if !ok {
		return nil, nil, response.TooMany(time.Second, "too many concurrent token requests")
	}
	return who, release, nil
}

// tokensOfCaller returns who asks and the persistent tokens of this user, also those that have expired, with a slot that release gives
// back.
func (h *Handler) tokensOfCaller(r *http.Request) (who user.Info, tokens []managementv3.Token, release func(), err error) {
	who, release, err = h.authenticate(r)
	if err != nil {
		return nil, nil, nil, err
	}
	held, expired, err := h.tokensOf(r.Context(), who)
	if err != nil {
		release()
		return nil, nil, nil, err
	}
	return who, slices.Concat(held, expired), release, nil
}

// own lists the persistent tokens of the user who asks, without their hashes. No right is needed: they are for nobody but this user.
func (h *Handler) own(r *http.Request) (*managementv3.TokenList, error) {
	_, tokens, release, err := h.tokensOfCaller(r)
	if err != nil {
		return nil, err
	}
	defer release()
	list := &managementv3.TokenList{Items: tokens}
	for i := range list.Items {
		list.Items[i].Spec.Hash, list.Items[i].ManagedFields = "", nil
	}
	return list, nil
}

// revoke deletes a Token of the user who asks. One of somebody else is answered as one that does not exist.
func (h *Handler) revoke(r *http.Request, name string) (*Revoked, error) {
	who, tokens, release, err := h.tokensOfCaller(r)
	if err != nil {
		return nil, err
	}
	defer release()
	for i := range tokens {
		if tokens[i].Name != name {
			continue
		}
		if err := objects.Delete(r.Context(), h.Client, &tokens[i]); err != nil {
			return nil, fmt.Errorf("revoking a persistent token of a user: %w", err)
		}
		h.Logger.Info("A user has revoked a persistent token", "user", who.GetName(), "Token", name)
		return &Revoked{Name: name}, nil
	}
	return nil, response.Errorf(http.StatusNotFound, "you have no persistent token %.100q", name)
}
