package snapshot

// Path is where a server is asked about its snapshots, as on k3s.
const Path = "/db/snapshot"

// The operations of a Call.
const (
	OperationSave   = "save"
	OperationList   = "list"
	OperationDelete = "delete"
	OperationPrune  = "prune"
)

// Call is what the command line asks a server to do. What is not set is as the server is configured.
type Call struct {
	Operation string `json:"operation"`
	// Name are snapshots to delete, or one beginning of names otherwise.
	Name      []string `json:"name,omitempty"`
	Dir       *string  `json:"dir,omitempty"`
	Compress  *bool    `json:"compress,omitempty"`
	Retention *int     `json:"retention,omitempty"`
}

// Result names the snapshots that were made and deleted.
type Result struct {
	Created []string `json:"created,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
}
