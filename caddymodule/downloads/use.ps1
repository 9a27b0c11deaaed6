
# Arguments: CLIENT CODE [FLAG...]
#            --undo CLIENT
#
# Sets up a client, such as claude, with a code of the gateway's console. The flags are those of "connector use". The
# connector is downloaded for that, and removed again.

function Main {
	$to = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
	$otherwise = "To set up the client by hand, open the page of a model: $console/models"
	try {
		Get-Connector $to
		& (Join-Path $to 'connector.exe') use @args --gateway ($console -replace '/console$')
		if ($LASTEXITCODE -ne 0) { throw 'The client is not set up.' }
	} finally { Remove-Item -Recurse -Force -ErrorAction SilentlyContinue $to }
}
