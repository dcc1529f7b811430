package supervisor

// TokenPath is where a server is told its new token.
var TokenPath = path("token")

// TokenRequest holds the new token; an empty one asks for a random one.
type TokenRequest struct {
	NewToken *string `json:"newToken,omitempty"`
}

// AuthoritiesPath is where new authorities are written to the cluster's data, with a Bundle as the body. With the query force=true they
// need not be of the same root as those before.
var AuthoritiesPath = path("cert/cacerts")
