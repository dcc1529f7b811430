package tokens

import (
	"slices"
	"strings"
	"time"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// Known is what the hub stores of a token: its public part, which tokens of other hubs lack, and its hash. The zero value is no token.
type Known struct{ ID, Hash string }

// Registration is the content of the Secret of a ClusterRegistrationToken. Zero times mean never.
type Registration struct {
	Current, Previous         Known
	ExpiresAt, GraceExpiresAt time.Time
	// UsedBy are hashes of the users of a token with spec.maxUses.
	UsedBy []string
	// Whole is set if the Secret holds whole tokens, as another hub writes them.
	Whole bool
}

// Equal reports whether two Secrets have the same content.
func (r Registration) Equal(other Registration) bool {
	return r.Current == other.Current && r.Previous == other.Previous && slices.Equal(r.UsedBy, other.UsedBy) && r.Whole == other.Whole &&
		r.ExpiresAt.Equal(other.ExpiresAt) && r.GraceExpiresAt.Equal(other.GraceExpiresAt)
}

// DecodeSecret decodes the data of a token Secret. Times that cannot be parsed count as passed long ago. A whole token takes precedence
// over a hash, since it is the newer one.
func DecodeSecret(data map[string][]byte) Registration {
	text := func(key string) string { return string(data[key]) }
	r := Registration{
		Current:        Known{text(managementv3.TokenIDKey), text(managementv3.TokenHashKey)},
		Previous:       Known{text(managementv3.PreviousTokenIDKey), text(managementv3.PreviousTokenHashKey)},
		ExpiresAt:      decodeTime(text(managementv3.ExpiresAtKey)),
		GraceExpiresAt: decodeTime(text(managementv3.GracePeriodExpiresAtKey)),
		UsedBy:         strings.Fields(text(managementv3.UsedByKey)),
	}
	if token := text(managementv3.TokenKey); token != "" {
		r.Current, r.Whole = Known{RegistrationID(token), Hash(token)}, true
	}
	if token := text(managementv3.PreviousTokenKey); token != "" {
		r.Previous, r.Whole = Known{RegistrationID(token), Hash(token)}, true
	}
	return r
}

func decodeTime(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return t
}

// Encode is the data of the Secret, without what is not set and without whole tokens.
func (r Registration) Encode() map[string][]byte {
	data := map[string][]byte{}
	set := func(key, value string) {
		if value != "" {
			data[key] = []byte(value)
		}
	}
	moment := func(key string, t time.Time) {
		if !t.IsZero() {
			data[key] = []byte(t.UTC().Format(time.RFC3339))
		}
	}
	set(managementv3.TokenIDKey, r.Current.ID)
	set(managementv3.TokenHashKey, r.Current.Hash)
	set(managementv3.PreviousTokenIDKey, r.Previous.ID)
	set(managementv3.PreviousTokenHashKey, r.Previous.Hash)
	set(managementv3.UsedByKey, strings.Join(r.UsedBy, "\n"))
	moment(managementv3.ExpiresAtKey, r.ExpiresAt)
	moment(managementv3.GracePeriodExpiresAtKey, r.GraceExpiresAt)
	return data
}

// Next is when one of the tokens expires next; zero for never.
func (r Registration) Next() time.Time {
	times := slices.DeleteFunc([]time.Time{r.ExpiresAt, r.GraceExpiresAt}, time.Time.IsZero)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}
