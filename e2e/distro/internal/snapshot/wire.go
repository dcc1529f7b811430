package snapshot

import "github.com/drover-dev/drover/e2e/distro/internal/config"

// Path is where a server is asked about its snapshots, as on k3s.
const Path = "/db/snapshot"

// The operations of a Call.
const (
	OperationSave   = "save"
	OperationList   = "list"
	OperationDelete = "delete"
	OperationPrune  = "prune"
)

// Call is what the command line asks a server to do. What is not set is as the server is configured, but for S3.
type Call struct {
	Operation string `json:"operation"`
	// Name are snapshots to delete, or one beginning of names otherwise.
	Name      []string `json:"name,omitempty"`
	Dir       *string  `json:"dir,omitempty"`
	Compress  *bool    `json:"compress,omitempty"`
	Retention *int     `json:"retention,omitempty"`
	// S3 is the bucket to use as well; a server uses its own for scheduled snapshots alone.
	S3 *config.S3 `json:"s3,omitempty"`
}

// Result names the snapshots that were made and deleted. One that is in the folder and in the bucket is named twice.
type Result struct {
	Created []string `json:"created,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
}
