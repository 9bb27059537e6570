package event

import "encoding/json"

// Facts stand in the Data of every event of an attempt, beside what else is there.
type Facts struct {
	Attempt int32 `json:"attempt"` // number within the version
	// Was is the state before, of an event that tells of a change of the state.
	Was        string `json:"was,omitempty"`
	ReasonCode string `json:"reason_code,omitempty"`
	ExitCode   *int32 `json:"exit_code,omitempty"`
}

// With returns data, which is a JSON object or nothing, with the facts before what it holds.
func (f Facts) With(data json.RawMessage) json.RawMessage {
	own, err := json.Marshal(f)
	if err != nil {
		return data // numbers and strings always encode
	}
	if len(data) < len(`{"a":1}`) {
		return own
	}
	return append(append(own[:len(own)-1], ','), data[1:]...)
}
