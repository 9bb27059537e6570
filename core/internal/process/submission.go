package process

// NewVersion is one accepted submission on its way into the store. The ids are fresh; ProcessID is used only when the
// project has no process of that name yet.
type NewVersion struct {
	ID             string
	AttemptID      string
	ProcessID      string
	ProcessName    string
	ProcessType    string
	ProcessLabels  map[string]string
	Spec           Spec
	SubmittedBy    string // user id
	IdempotencyKey string // empty: none
	BodyHash       string // SHA-256 of the canonical submission, hex
}
