package supervisor

// EncryptionState is the answer to where the encryption of Secrets stands, in k3s's spelling.
type EncryptionState struct {
	Stage     string `json:"stage"`
	ActiveKey string `json:"activekey"`
	// Enable is nil on a server without keys.
	Enable       *bool    `json:"enable,omitempty"`
	HashMatch    bool     `json:"hashmatch,omitempty"`
	HashError    string   `json:"hasherror,omitempty"`
	InactiveKeys []string `json:"inactivekeys,omitempty"`
}

// EncryptionRequest asks for a stage, or for encryption to be switched on or off.
type EncryptionRequest struct {
	Stage  *string `json:"stage,omitempty"`
	Enable *bool   `json:"enable,omitempty"`
	// Force goes on although another stage is due, Skip leaves the old key in place.
	Force bool `json:"force"`
	Skip  bool `json:"skip"`
}

// The paths of both.
var (
	EncryptionStatusPath = path("encrypt/status")
	EncryptionConfigPath = path("encrypt/config")
)

// The stages that can be asked for.
const (
	StagePrepare    = "prepare"
	StageRotate     = "rotate"
	StageReencrypt  = "reencrypt_active"
	StageRotateKeys = "rotate_keys"
)
