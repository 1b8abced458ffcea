# Jobs of Sidekiq: each adds its number to the file DONE. URL is the server's.
# usage: sidekiq -r jobs.rb      runs jobs
#        ruby jobs.rb            enqueues the numbers that come on standard input, one a line
require "sidekiq"

Sidekiq.configure_server { |config| config.redis = { url: ENV["URL"] } }
Sidekiq.configure_client { |config| config.redis = { url: ENV["URL"] } }

class Note
  include Sidekiq::Worker

  def perform(number)
    File.write(ENV["DONE"], "#{number}\n", mode: "a")
  end
end

if $PROGRAM_NAME == __FILE__
  $stdin.each_line do |line|
    Note.perform_async(line.to_i)
  # What an application expects when its server is away. Any other error ends this program.
  rescue Redis::BaseConnectionError => error
    warn "again: #{error.inspect}"
    sleep 0.2
    retry
  end
end
