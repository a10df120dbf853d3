package http2

// SettingID identifies a setting (RFC 9113 6.5.2). Unknown settings are ignored.
type SettingID uint16

// The settings of RFC 9113, RFC 8441 and RFC 9218.
const (
	SettingHeaderTableSize       SettingID = 0x1
	SettingEnablePush            SettingID = 0x2
	SettingMaxConcurrentStreams  SettingID = 0x3
	SettingInitialWindowSize     SettingID = 0x4
	SettingMaxFrameSize          SettingID = 0x5
	SettingMaxHeaderListSize     SettingID = 0x6
	SettingEnableConnectProtocol SettingID = 0x8 // RFC 8441 3
	SettingNoRFC7540Priorities   SettingID = 0x9 // RFC 9218 2.1
)

// Setting is one entry of a SETTINGS frame.
type Setting struct {
	ID    SettingID
	Value uint32
}

const settingLen = 6

// Settings are the settings that one side has announced to the other.
type Settings struct {
	HeaderTableSize       uint32 // maximum size of the announcing side's dynamic table for decoding, in bytes
	MaxConcurrentStreams  uint32 // maximum number of streams that the other side may have open
	InitialWindowSize     uint32 // receive window of each new stream, in bytes
	MaxFrameSize          uint32 // maximum payload of a frame that the announcing side accepts, in bytes
	MaxHeaderListSize     uint32 // maximum size of a header section, in bytes (RFC 9113 6.5.2)
	EnablePush            bool
	EnableConnectProtocol bool
}

// unlimited is the value of a limit that no SETTINGS frame has set.
const unlimited = 1<<32 - 1

// defaultSettings returns the settings before the first SETTINGS frame (RFC 9113 6.5.2).
func defaultSettings() Settings {
	return Settings{
		HeaderTableSize:      DefaultTableSize,
		MaxConcurrentStreams: unlimited,
		InitialWindowSize:    DefaultWindow,
		MaxFrameSize:         MinFrameSize,
		MaxHeaderListSize:    unlimited,
		EnablePush:           true,
	}
}

// set applies one entry of a SETTINGS payload. from is the sender's role.
func (s *Settings) set(id SettingID, v uint32, from Role) *ConnectionError {
	switch id {
	case SettingHeaderTableSize:
		s.HeaderTableSize = v
	case SettingEnablePush:
		if v > 1 || v == 1 && from == Server {
			return connectionError(ProtocolError, "SETTINGS_ENABLE_PUSH has a value that its sender must not set (RFC 9113 6.5.2)")
		}
		s.EnablePush = v == 1
	case SettingMaxConcurrentStreams:
		s.MaxConcurrentStreams = v
	case SettingInitialWindowSize:
		if v > MaxWindow {
			return connectionError(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1 (RFC 9113 6.5.2)")
		}
		s.InitialWindowSize = v
	case SettingMaxFrameSize:
		if v < MinFrameSize || v > MaxFrameSize {
			return connectionError(ProtocolError, "SETTINGS_MAX_FRAME_SIZE outside of 2^14 to 2^24-1 (RFC 9113 6.5.2)")
		}
		s.MaxFrameSize = v
	case SettingMaxHeaderListSize:
		s.MaxHeaderListSize = v
	case SettingEnableConnectProtocol:
		if v > 1 || v == 0 && s.EnableConnectProtocol {
			return connectionError(ProtocolError, "SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1, or changed from 1 to 0 (RFC 8441 3)")
		}
		s.EnableConnectProtocol = v == 1
	case SettingNoRFC7540Priorities: // priorities are ignored either way
	}
	return nil
}
